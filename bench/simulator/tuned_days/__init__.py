"""What `pando tune` finds on diurnal days: GPU-hours beside those of the defaults, on what judges.

Run: python -m bench.simulator.tuned_days --output DIR
    [--conversation mooncake_conversation.jsonl.gz] [--office 3]

Read in this order:
    __main__.py  runs the searches and what they are compared with, and prints the table
    searches.py  one search as a person runs it, and the runs of other candidates on its parts
    office.py    a load of several days whose hours repeat
    grid.py      all combinations of some fields' values
"""
