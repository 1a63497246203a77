"""Scalers of a simulated pool, the Kubernetes around them, and the costs of their changes.

Read in this order:
    kind.py     a scaler's entry in the registry, and what a controller is
    scaler.py   a controller, its Kubernetes, and the costs of its changes
    cluster.py  the Kubernetes
    pool.py     Pando's operator
    hpa.py      HorizontalPodAutoscaler
    knative.py  Knative's autoscaler
    dynamo_planner.py  NVIDIA Dynamo's planner
    ledger.py   what each change of the size cost

To add a scaler, copy knative.py and list it here; the settings, `--help` and docs/simulator.md have
it from here.

Imports the operator's own decisions and plans, and the simulated fleet, but the registry itself
neither: each controller's module is imported when a run wants it.
"""

from typing import TYPE_CHECKING

from pando_fleet.choices import by_name
from pando_sim.scaling.kind import Controller, ScalerKind

if TYPE_CHECKING:
    from pando_operator.resource.pool import WorkerPool
    from pando_sim.spec import FleetSpec


def _pando(spec: "FleetSpec", pool: "WorkerPool") -> Controller:
    from pando_sim.scaling.pool import PoolController

    return PoolController(pool, spec.replicas, spec.clock)


def _hpa_queue(spec: "FleetSpec", pool: "WorkerPool") -> Controller:
    from pando_sim.scaling.hpa import HpaController, queue_length

    target = spec.hpa_queue_target
    return HpaController("waiting requests", queue_length, target, pool.spec.scaling)


def _hpa_kv(spec: "FleetSpec", pool: "WorkerPool") -> Controller:
    """At the manifest's target pressure, so that it looks at the same share of the same room as
    `pando`."""
    from pando_sim.scaling.hpa import HpaController, kv_use

    scaling = pool.spec.scaling
    return HpaController("KV use", kv_use, scaling.target.pressure, scaling)


def _knative(spec: "FleetSpec", pool: "WorkerPool") -> Controller:
    from pando_sim.scaling.knative import KnativeController

    return KnativeController(spec.knative_target, pool.spec.scaling)


def _dynamo_planner(spec: "FleetSpec", pool: "WorkerPool") -> Controller:
    from pando_sim.scaling.dynamo_planner import planner_controller

    return planner_controller(spec, pool.spec.scaling)


SCALERS = by_name(
    ScalerKind(
        name="pando",
        help="the operator with the manifest's `spec.scaling`",
        controller=_pando,
        is_operator=True,
    ),
    ScalerKind(
        name="hpa_queue",
        help="HorizontalPodAutoscaler on requests that wait, `--hpa-queue-target` a replica, with"
        " the manifest's `behavior`",
        controller=_hpa_queue,
    ),
    ScalerKind(
        name="hpa_kv",
        help="the same on the share of KV room that running requests hold, at the manifest's"
        " `target.pressure`",
        controller=_hpa_kv,
    ),
    ScalerKind(
        name="knative",
        help="Knative's autoscaler on requests at a time, 70 % of `--knative-target` a replica",
        controller=_knative,
    ),
    ScalerKind(
        name="dynamo_planner",
        help="NVIDIA Dynamo's planner on the manifest's `target.ttftSeconds` and"
        " `target.interTokenSeconds` (0.5 s and 0.05 s if unset)",
        controller=_dynamo_planner,
    ),
)
