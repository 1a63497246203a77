"""Carries out a plan.

Read in this order:
    execute.py  its actions, in order
    parts.py    the Deployment and the Service of a pool

The plan is `lifecycle`'s.
"""
