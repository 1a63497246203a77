"""The scheduler process.

Read in this order:
    process.py     loads the model, then turns commands into steps and steps into events
    step_times.py  how long a step may take; the watchdog uses it
    step_log.py    a line in the log every N steps
    profile.py     `--profile`: a trace of the first busy steps

Imports the scheduler, the runner and the ranks.
"""
