"""`pando sim`: from a trace and a pool's manifest to runs, a table and files.

Read in this order:
    command.py    the command, with `compare` and `calibrate`
    manifest.py   what a simulation takes from a WorkerPool
    faults.py     faults in words
    plan.py       from settings to runs
    runs.py       all runs, each in a process, ended together
    work.py       one run
    progress.py   the bars on standard error
    calibrate.py  measures a running worker

Imports the simulator, and the signals of `up`.
"""
