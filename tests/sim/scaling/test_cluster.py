"""The simulated Kubernetes, by its effect on a fleet."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pando_operator.lifecycle.pods import DELETION_COST
from pando_sim.fleet.control import FleetControl
from pando_sim.records import Outcome
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.ledger import Ledger
from pando_sim.scaling.scaler import ClusterScaler
from tests.sim.fleet.world import by_number, request, run, with_worker
from tests.sim.scaling.world import START_S, one_after_the_other, pool, scaled


@dataclass
class ByHand:
    """Runs given actions at given times, and records the replicas a second later."""

    what: list[tuple[float, Callable[[FleetControl, Cluster], None]]]
    there: list[list[str]] = field(default_factory=list)

    def is_due(self, fleet: FleetControl, cluster: Cluster) -> bool:
        return True

    async def look(self, fleet: FleetControl, cluster: Cluster) -> None:
        while self.what and fleet.now_s >= self.what[0][0]:
            _, act = self.what.pop(0)
            act(fleet, cluster)
            fleet.at(fleet.now_s + 1.0, self._write)

    async def _write(self, fleet: FleetControl) -> None:
        self.there.append([replica.name for replica in fleet.replicas()])


def _kept(*what: tuple[float, Callable[[FleetControl, Cluster], None]]) -> list[list[str]]:
    hand = ByHand(list(what))
    spec = replace(with_worker(start_s=START_S), replicas=3)
    last = request(1, what[-1][0] + 3.0, 2)
    run([request(0, 0.0, 1), last], spec, scaler=_scaler(hand, _cluster()))
    return [[name.removeprefix("replica-") for name in names] for names in hand.there]


def _cluster() -> Cluster:
    return Cluster(grace_s=30.0, gated=False)


def _scaler(hand: ByHand, cluster: Cluster) -> ClusterScaler:
    return ClusterScaler(hand, cluster, Ledger(2.0), sets_marks=False)


def _to(replicas: int) -> Callable[[FleetControl, Cluster], None]:
    return lambda fleet, cluster: cluster.scale(fleet, replicas)


def test_unready_pods_are_deleted_first_then_those_that_became_ready_last() -> None:
    kept = _kept((1.0, _to(4)), (2.0, _to(5)), (9.0, _to(6)), (10.5, _to(5)), (12.0, _to(4)))
    assert kept == [
        ["0", "1", "2", "3"],
        ["0", "1", "2", "3", "4"],
        ["0", "1", "2", "3", "4", "5"],
        ["0", "1", "2", "3", "4"],  # 5 was starting
        ["0", "1", "2", "3"],
    ]


def test_of_ready_pods_the_lowest_deletion_cost_goes_first() -> None:
    def mark(fleet: FleetControl, cluster: Cluster) -> None:
        cluster.annotate("replica-1", {DELETION_COST: "-5"})

    kept = _kept((1.0, mark), (2.0, _to(2)), (4.0, _to(3)))
    assert kept[1] == ["0", "2"]
    assert kept[2] == ["0", "2", "3"]  # names are not reused


def test_a_deleted_pod_finishes_what_it_has_within_its_grace_period_and_no_longer() -> None:
    spec = replace(with_worker(start_s=START_S), replicas=2)
    requests = [request(number, 0.0, number, output=400) for number in range(4)]

    def ends(grace_s: float) -> set[int]:
        hand = ByHand([(1.0, _to(1))])
        scaler = _scaler(hand, Cluster(grace_s=grace_s, gated=False))
        served = by_number(run(requests, spec, scaler=scaler))
        assert {one.outcome for one in served} == {Outcome.FINISHED}
        return {one.tries for one in served}

    assert ends(30.0) == {1}
    assert ends(1.0) == {1, 2}  # its requests continue elsewhere


def test_a_pool_goes_to_zero_and_wakes_for_waiting_requests() -> None:
    early = one_after_the_other(0, 1, until_s=6.0)
    late = replace(request(len(early), 90.0, 7), at_s=90.0)
    found = scaled([*early, late], pool(minReplicas=0, idleSeconds=30))
    assert [step.after for step in found.steps] == [0, 1]
    assert {one.outcome for one in found.served} == {Outcome.FINISHED}
    woken = by_number(found)[-1]
    assert START_S < woken.ttft_s < START_S + 5.0
    assert found.steps[-1].delayed_requests == 1
