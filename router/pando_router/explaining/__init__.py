"""Explains where a request would be placed, and why a past one was placed where it was.

Read in this order:
    explain.py  both answers of /route/explain
    recent.py   the last requests and their outcomes
    reasons.py  puts a choice into words

Places nothing. Imports placing and exchange.
"""
