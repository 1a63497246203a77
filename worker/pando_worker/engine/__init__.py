"""The scheduler process.

Read in this order:
    process.py     loads the model, then turns commands into steps and steps into events
    step_times.py  how long a step may take, for the watchdog
    step_log.py    a line in the log every so many steps
    profile.py     `--profile`: a trace of the first busy steps

Imports the scheduler, the runner and the ranks.
"""
