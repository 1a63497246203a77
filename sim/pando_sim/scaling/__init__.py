"""Scalers of a simulated pool, the Kubernetes around them, and the costs of their changes.

Read in this order:
    scaler.py   a controller, its Kubernetes, and the costs of its changes; its registry entry
    cluster.py  the Kubernetes
    pool.py     Pando's operator
    hpa.py      HorizontalPodAutoscaler
    knative.py  Knative's autoscaler
    dynamo_planner.py  NVIDIA Dynamo's planner
    ledger.py   what each change of the size cost

To add a scaler, copy knative.py and list it here; the settings, `--help` and docs/simulator.md have
it from here.

Imports the operator's own decisions and plans, and the simulated fleet.
"""

from pando_fleet.choices import by_name
from pando_sim.scaling.dynamo_planner import DYNAMO_PLANNER
from pando_sim.scaling.hpa import HPA_KV, HPA_QUEUE
from pando_sim.scaling.knative import KNATIVE
from pando_sim.scaling.pool import PANDO

SCALERS = by_name(PANDO, HPA_QUEUE, HPA_KV, KNATIVE, DYNAMO_PLANNER)
