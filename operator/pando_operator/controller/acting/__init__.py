"""Carries out the plans of `lifecycle`.

Read in this order:
    execute.py        the actions of a plan, in order
    owned_objects.py  the Deployment and the Service of a pool
"""
