"""Searches a pool's settings by simulating a trace, and judges what it found on another part of it.

Read in this order:
    goal.py       what is asked for: times that 99 % of the requests keep, or a budget
    score.py      what a run says about its candidate
    knobs.py      the fields that may be searched, each with its range
    lists.py      lists in the manifest that several knobs make:
    rates.py      rate policies of `behavior`
    schedules.py  a higher minimum in the hours that are busy every day
    space.py      values of the knobs to a manifest, and back
    parts.py      the part of the trace to search on, and the part to judge on
    excerpt.py    stretches of a part, with weights, for runs that take less time
    watch.py      runs one candidate, and ends it once it has lost
    variations.py  other arrivals, slower starts, a lost replica
    sweep.py      the candidates to try first: one field each
    coordinates.py  a candidate as a point
    surrogate.py  guesses a number of candidates that were not played
    proposing.py  the candidate of which most is expected, by the guesses
    search.py     which candidates to try next
    importance.py  which fields matter most, by the guesses
    choice.py     the front, and the point that is recommended
    findings.py   everything that a search found, as results.json has it
    words.py      what the findings say, in sentences
    page/         the report

Imports the simulator's parts and the operator's resource; knows no processes and no terminal.
"""
