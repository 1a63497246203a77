"""Why a request would go where it would go, and why a past one went there.

Read in this order:
    explain.py  both answers of /route/explain
    recent.py   the last requests, and what became of them
    reasons.py  a choice in words

Places nothing. Imports placing and exchange.
"""
