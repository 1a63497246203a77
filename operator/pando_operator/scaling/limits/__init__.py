"""What a proposal may become: bounds, stabilization windows, rates, budgets.

Read in this order:
    course.py    from what is wanted to what is decided
    behavior.py  the window of a scale-down, and rate policies
    bounds.py    the sizes that hold now
    schedule.py  bounds at some times
    budget.py    replica-hours

Pure. Imports decision, snapshot and history.
"""
