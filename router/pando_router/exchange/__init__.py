"""`Exchange`: one request on its way, and what becomes of it, told to those who listen.

Read in this order:
    exchange.py  the request's own record; `Listener` follows it
    past.py      a try after it is over
    tail.py      tokens used, from the end of an answer

Only its own methods change an exchange. Imports placing, tenants, migration and what is below.
"""
