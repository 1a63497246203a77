"""Limits on a proposal: bounds, stabilization windows, rates, budgets.

Read in this order:
    limiter.py   applies the limits in order
    behavior.py  stabilization windows and rate policies
    bounds.py    the smallest and largest size allowed now
    schedule.py  bounds that hold at certain times
    budget.py    replica-hours

Pure. Imports decision, snapshot and history.
"""
