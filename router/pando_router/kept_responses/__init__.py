"""Responses that one replica's engine keeps: who goes on from one goes to that replica.

Read in this order:
    earlier.py      requests that go on from an earlier response
    home_writer.py  tells Redis where a response is kept
    stored.py       reads, deletes and cancels one

Which replica it is stands in `pando_fleet.records.homes`.
"""
