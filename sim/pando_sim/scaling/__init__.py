"""Who changes a simulated pool's size, the Kubernetes in which that happens, and what it costs.

Read in this order:
    scalers.py  all scalers by name
    scaler.py   a controller, its Kubernetes, and the price of what it does
    cluster.py  that Kubernetes
    pool.py     Pando's operator
    hpa.py      HorizontalPodAutoscaler
    knative.py  Knative's autoscaler
    ledger.py   what each change of size cost

Imports the operator's own decisions and plans, and the simulated fleet.
"""
