"""`pando tune`: searches a pool's settings on a trace; writes a report, a manifest and a patch.

Read in this order:
    command.py    the command
    settings.py   its settings
    plan.py       what is searched: the pool, the fields, the parts of the trace
    noted.py      which traffic a manifest was tuned on, as its annotation
    proving.py    a recording is compared with its replay first
    course.py     the course of a search, from the first run to the findings
    finding.py    the parts of its findings
    runs.py       runs that are known already are not made again
    crew.py       processes that keep the trace and make runs
    display.py    the progress line, and the table at the end
    files.py      the report, the manifest, the patch

Imports the simulator and the commands of `pando sim`.
"""
