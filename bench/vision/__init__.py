"""What images cost.

Read in this order:
    models.py     a model that sees, with random weights, and its text part alone
    others.py     what other programs take of the cores meanwhile
    text_cost.py  the CPU engine's text requests, with and without a vision tower
    flood.py      text streams beside a flood of large images
    loop.py       the event loop beside a long video
"""
