"""`pando sim`: simulates a trace with a pool's manifest; writes a table and files.

Read in this order:
    command.py      the command, with `compare`, `calibrate` and `prove`
    manifest.py     reads a WorkerPool for a simulation
    faults.py       parses faults
    trace.py        the trace as it is played, and its size
    fleet.py        the simulated fleet
    plan.py         plans the runs
    errors.py       why a simulation cannot run
    runs.py         runs all of them, each in a process
    processes.py    how processes start and end
    work.py         one run
    output.py       the folder of their files
    progress.py     progress on standard error
    pace.py         how long the runs will still take
    calibrate.py    the command `calibrate`
    cost_model.py   measures a running worker, writes its cost model
    prove.py        compares a recording with its replay

Imports the simulator, and the signals of `up`.
"""
