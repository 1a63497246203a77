"""What a look tells: status, Events, metrics, rows in Redis.

Read in this order:
    telling.py  all of it
    status.py   which status to write, and when

Imports conversions, verdicts and acting's outcome.
"""
