"""Searches a pool's settings by simulating a trace, and judges what it found on another part of it.

Read in this order:
    goal.py       what is asked for: times that 99 % of the requests keep, or a budget
    score.py      what a run says about its candidate
    knobs.py      the fields that may be searched, each with its range
    space.py      values of the knobs to a manifest, and back
    parts.py      the part of the trace to search on, and the part to judge on
    excerpt.py    some hours of a part, for runs that take less time
    watch.py      runs one candidate, and ends it once it has lost
    variations.py  other arrivals, slower starts, a lost replica
    search.py     which candidates to try next (optuna)
    choice.py     the front, and the point that is recommended
    findings.py   everything that a search found, as results.json has it
    words.py      what the findings say, in sentences
    page/         the report

Imports the simulator's parts and the operator's resource; knows no processes and no terminal.
"""
