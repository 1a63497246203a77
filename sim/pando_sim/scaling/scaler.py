"""`ClusterScaler`: a controller, its Kubernetes, and the costs of its changes."""

from pando_fleet.records.marks import MarkKind
from pando_operator.objects.pod import grace_s
from pando_operator.resource.pool import WorkerPool
from pando_sim.fleet.control import FleetControl, Scaler
from pando_sim.records import Served
from pando_sim.request import Request
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.kind import Controller, ScalerKind
from pando_sim.scaling.ledger import Ledger
from pando_sim.spec import FleetSpec


class ClusterScaler:
    """A `Scaler`."""

    every_s = 0.5  # of the kubelet; a controller has its own period

    def __init__(
        self, controller: Controller, cluster: Cluster, ledger: Ledger | None, *, sets_marks: bool
    ) -> None:
        """
        Args:
            ledger: None if nobody wants to know what each change cost.
        """
        self.sets_marks = sets_marks
        self._controller = controller
        self._cluster = cluster
        self._ledger = ledger
        self._has_begun = False

    async def act(self, fleet: FleetControl) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._cluster.adopt(fleet)
        self._cluster.step(fleet)
        if self._controller.is_due(fleet, self._cluster):
            self._cluster.has_changed = False
            change = await self._controller.look(fleet, self._cluster)
            if change is not None and self._ledger is not None:
                self._ledger.step(fleet.now_s, change.before, change.after, change.reason)
        if self._ledger is not None:
            self._ledger.look(fleet, self._cluster.leaving())

    def ended(self, request: Request, served: Served) -> None:
        if self._ledger is not None:
            self._ledger.ended(request, served)

    def prefilled(self, kind: MarkKind, tokens: int) -> None:
        if self._ledger is not None:
            self._ledger.prefilled(kind, tokens)

    def close(self, fleet: FleetControl) -> None:
        if self._ledger is not None:
            self._ledger.close(fleet)


def scaler_of(
    kind: ScalerKind, spec: FleetSpec, pool: WorkerPool, *, records: bool = True
) -> Scaler:
    """For a run's fleet and its manifest, which has a maxReplicas. `records`: what each change of
    the size cost."""
    cluster = Cluster(grace_s=grace_s(pool.spec), gated=kind.is_operator)
    ledger = Ledger(spec.slow_ttft_s) if records else None
    controller = kind.controller(spec, pool)
    return ClusterScaler(controller, cluster, ledger, sets_marks=kind.is_operator)
