"""The report of a search: one self-contained file.

Read in this order:
    page.py           fills the template
    plots.py          the front, and the importance of the fields
    tuning.html.j2    the template; its style is that of the simulator's report
"""
