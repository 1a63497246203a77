"""The operator: keeps each `WorkerPool` of a cluster at the size that its load asks for.

Read in this order:
    resource/    the WorkerPool: types, rules, CRD
    scaling/     from signals to a number of replicas; pure
    lifecycle/   from a number to steps that cut no stream; pure
    objects/     a pool's Kubernetes objects; pure
    controller/  the loop of each pool: look, decide, plan, act, tell
    kube/        calls, watches, the leader's lease, Events
    serve.py     the process
    declared/    applies the chart's pools
    settings.py, metrics.py

Imports fleet.
"""
