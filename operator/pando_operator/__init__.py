"""The operator: keeps each `WorkerPool` of a cluster at the size that its load needs.

Read in this order:
    resource/    the WorkerPool: types, rules, CRD
    scaling/     computes a number of replicas from signals; pure
    lifecycle/   plans the steps to that number without cutting a stream; pure
    adapters/    plans which adapters to load on which replica; pure
    objects/     builds a pool's Kubernetes objects; pure
    controller/  the loop of each pool: observe, decide, plan, act, report
    kube/        API calls, watches, leader election, Events
    worker_client.py  calls to workers
    operator.py  leads or waits to lead; health and metrics
    serve.py     the process
    declared/    applies the pools that the chart declares
    settings.py, metrics.py

Imports fleet.
"""
