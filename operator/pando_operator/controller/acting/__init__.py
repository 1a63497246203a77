"""Carries out the plans of `lifecycle` and `adapters`.

Read in this order:
    execute.py         the actions of a plan, in order
    owned_objects.py   the Deployment, the Service and the PodDisruptionBudget of a pool
    adapter_keeper.py  the adapters of a pool's replicas
"""
