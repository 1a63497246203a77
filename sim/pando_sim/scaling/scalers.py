"""The scalers that there are, by name."""

from collections.abc import Callable, Mapping

from pando_operator.objects.pod import grace_s
from pando_operator.resource.pool import WorkerPool
from pando_sim.fleet.control import Scaler
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.hpa import HpaController, kv_use, queue_length
from pando_sim.scaling.knative import KnativeController
from pando_sim.scaling.ledger import Ledger
from pando_sim.scaling.pool import PoolController
from pando_sim.scaling.scaler import ClusterScaler, Controller
from pando_sim.spec import FleetSpec

ScalerFactory = Callable[[FleetSpec, WorkerPool], Scaler]
"""Of a run's fleet and its manifest, which has a maxReplicas."""


def _pando(spec: FleetSpec, pool: WorkerPool) -> Controller:
    return PoolController(pool, spec.replicas)


def _hpa_queue(spec: FleetSpec, pool: WorkerPool) -> Controller:
    policy = pool.spec.scaling
    return HpaController("waiting requests", queue_length, spec.hpa_queue_target, policy)


def _hpa_kv(spec: FleetSpec, pool: WorkerPool) -> Controller:
    """At the manifest's target pressure, so that both look at the same share of the same room."""
    policy = pool.spec.scaling
    return HpaController("KV use", kv_use, policy.target.pressure, policy)


def _knative(spec: FleetSpec, pool: WorkerPool) -> Controller:
    return KnativeController(spec.knative_target, pool.spec.scaling)


def _in_cluster(
    make: Callable[[FleetSpec, WorkerPool], Controller], *, is_operator: bool = False
) -> ScalerFactory:
    def scaler(spec: FleetSpec, pool: WorkerPool) -> Scaler:
        cluster = Cluster(grace_s=grace_s(pool.spec), gated=is_operator)
        ledger = Ledger(spec.slow_ttft_s)
        return ClusterScaler(make(spec, pool), cluster, ledger, sets_marks=is_operator)

    return scaler


SCALERS: Mapping[str, ScalerFactory] = {
    "pando": _in_cluster(_pando, is_operator=True),
    "hpa_queue": _in_cluster(_hpa_queue),
    "hpa_kv": _in_cluster(_hpa_kv),
    "knative": _in_cluster(_knative),
}
