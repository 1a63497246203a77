"""Explains where a request would be placed, and why a past one was placed where it was.

Read in this order:
    routes.py   /route/explain
    explain.py  both answers
    recent.py   the last requests and their outcomes
    reasons.py  puts a choice into words

Places nothing. Imports placing and exchange.
"""
