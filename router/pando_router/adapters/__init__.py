"""Loads and unloads LoRA adapters at all replicas of a pool.

Read in this order:
    routes.py      the two endpoints, for admins
    everywhere.py  sends a change to each replica, and what each one answers

Imports fleet_view, tenants and http.
"""
