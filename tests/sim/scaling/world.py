"""Small pools that scale: a manifest, loads of a known size, and a run in one call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pando_operator.resource.parse import parse
from pando_operator.resource.pool import WorkerPool
from pando_sim.day_clock import SINCE_MONDAY, DayClock
from pando_sim.fleet.fault import Fault
from pando_sim.records import Run
from pando_sim.request import Request
from pando_sim.scaling import SCALERS
from pando_sim.scaling.scaler import scaler_of
from tests.sim.fleet.world import request, run, with_worker

START_S = 5.0


def pool(**scaling: Any) -> WorkerPool:
    """A pool of 1 to 6 replicas that shrinks when fewer were enough for 20 s."""
    fields = {
        "minReplicas": 1,
        "maxReplicas": 6,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 20}},
        **scaling,
    }
    return parse(
        {
            "apiVersion": "pando.dev/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": "pool"},
            "spec": {"model": "simulated", "replicas": 1, "scaling": fields},
        }
    )


def one_after_the_other(
    first: int, count: int, until_s: float, since_s: float = 0.0, blocks: int = 60
) -> list[Request]:
    """`count` sessions with one request at a time, long enough that `count` requests always run;
    numbered from `first`."""
    rounds = int((until_s - since_s) / 2.0)
    found = []
    for number in range(count * rounds):
        turn, who = divmod(number, count)
        own = range(10_000 * (first + who + 1), 10_000 * (first + who + 1) + blocks)
        each = request(first + number, since_s + 2.0 * turn, *own, output=256)
        found.append(replace(each, after=first + number - count) if turn else each)
    return found


def scaled(
    requests: Sequence[Request],
    manifest: WorkerPool,
    *,
    replicas: int = 1,
    faults: Sequence[Fault] = (),
    seed: int = 0,
    scaling: str = "pando",
    clock: DayClock = SINCE_MONDAY,
) -> Run:
    spec = replace(
        with_worker(start_s=START_S), replicas=replicas, scaling=scaling, seed=seed, sample_s=1.0
    )
    spec = replace(spec, hpa_queue_target=2.0, knative_target=4.0, clock=clock)
    return run(requests, spec, scaler=scaler_of(SCALERS[scaling], spec, manifest), faults=faults)
