"""What a request's headers say.

Read in this order:
    deadline.py        how long it may take
    priority.py        its place in the queue
    tenant.py          whose it is
    cache_salt.py      with whom it shares cached prefixes
"""
