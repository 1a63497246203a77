"""`Exchange`: one request and its answer, with the events that listeners receive.

Read in this order:
    exchange.py  the record of a request; `Listener` receives its events
    past.py      the record of a try that is over
    tail.py      token usage, read from the end of an answer

Only its own methods change an exchange. Imports placing, tenants, migration and lower layers.
"""
