"""Responses that one replica's engine keeps: requests that continue one go to that replica.

Read in this order:
    earlier.py         requests that continue an earlier response
    response_homes.py  records in Redis where a response is kept, and finds it
    stored.py          reads, deletes and cancels a response

`pando_fleet.records.homes` stores which replica it is.
"""
