"""The requests of a router written down, to be replayed by the simulator: no text, and no names of
tenants or users.

A file begins with a `Header`; each further line is a `Record` of one request that has ended.
"""
