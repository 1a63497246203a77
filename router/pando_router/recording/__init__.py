"""Records a router's requests for replay in the simulator: no text, and no names of tenants or
users.

A file begins with a `Header`; each following line is a `Record` of one request that has ended.
"""
