"""A simulated router treats requests that fail or find no place like the real one."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from pando_sim.fleet.control import FleetControl
from pando_sim.records import Outcome, Run
from pando_sim.spec import RouterSpec
from tests.sim.fleet.world import (
    SPEC,
    Words,
    by_number,
    conversations,
    fault,
    outage,
    request,
    run,
    with_router,
    with_worker,
)


@dataclass(frozen=True, slots=True)
class Short(Words):
    """A prompt of 8 tokens, too short for a chunk key."""

    @property
    def num_tokens(self) -> int:
        return 8

    def tokens(self) -> NDArray[np.int32]:
        return np.full(8, self.blocks[0], dtype=np.int32)


def outcomes(found: Run) -> Counter[Outcome]:
    return Counter(each.outcome for each in found.served)


def test_streams_that_are_lost_go_on_whatever_the_budget_of_retries() -> None:
    streams = 260  # half of them at the replica that dies, more than the retry budget
    requests = [request(number, 0.001 * number, number, output=400) for number in range(streams)]
    spec = replace(
        with_worker(capacity_tokens=2**18, max_running_requests=256),
        router=RouterSpec(max_outstanding=0),  # the other replica takes all that is lost at once
        replicas=2,
        sample_s=5.0,
    )
    died_s = 0.1 + max(each.first_token_s for each in run(requests, spec).served)
    found = run(
        requests, spec, faults=[fault(died_s, lambda fleet: fleet.stop("replica-0", leaves=False))]
    )
    lost = [each for each in found.served if each.tries > 1 and each.first_token_s < died_s]
    assert len(lost) > 110
    assert outcomes(found) == {Outcome.FINISHED: streams}


@pytest.mark.parametrize(("before_s", "outcome"), [(1.0, Outcome.FINISHED), (2.5, Outcome.FAILED)])
def test_a_lost_stream_waits_as_long_as_a_new_request_may(
    before_s: float, outcome: Outcome
) -> None:
    """If that is too short, its outcome is failed, not refused."""
    spec = replace(with_router(max_outstanding=1, queue_deadline_s=2.0), replicas=2)
    long, other = request(0, 0.0, 1, output=600), request(1, 0.0, 2, output=400)
    first, second = by_number(run([long, other], spec))
    died_s = second.end_s - before_s  # long after the deadline of its arrival
    assert died_s > 2.0

    def die(fleet: FleetControl) -> None:
        fleet.stop(first.replica, leaves=False)

    stream, _ = by_number(run([long, other], spec, faults=[fault(died_s, die)]))
    assert stream.first_token_s < died_s
    assert stream.outcome is outcome
    assert 0 < stream.output_tokens <= 600


def test_tries_are_counted_also_of_a_request_that_waited_between_them() -> None:
    spec = with_worker(engine={"max_queued_requests": 1}, max_running_requests=1)
    spec = replace(spec, router=replace(spec.router, max_outstanding=3), replicas=3)
    found = run([request(number, 0.0, number, output=50) for number in range(16)], spec)
    assert max(each.tries for each in found.served) == spec.router.max_tries
    assert len(outcomes(found)) == 2


def test_what_a_lost_stream_had_of_a_cache_counts() -> None:
    spec = replace(SPEC, replicas=1)
    twice = [request(0, 0.0, *range(6)), request(1, 5.0, *range(6), output=200)]
    found = run(
        twice, spec, faults=[fault(6.0, lambda fleet: fleet.stop("replica-0", leaves=False))]
    )
    _, lost = by_number(found)
    assert lost.outcome is Outcome.FAILED
    assert lost.cached_tokens > 64 * 5


@pytest.mark.parametrize("routers", [2, 4])
def test_routers_share_the_places_of_a_full_pool(routers: int) -> None:
    spec = replace(
        with_router(routers=routers, max_outstanding=1, queue_deadline_s=12.0), replicas=1
    )
    found = run([request(number, 0.0, number, output=40) for number in range(48)], spec)
    finished = Counter(
        each.number % routers for each in found.served if each.outcome is Outcome.FINISHED
    )
    assert sum(finished.values()) > 5 * routers
    assert min(finished[router] for router in range(routers)) > sum(finished.values()) / routers / 3


def test_without_redis_a_router_bounds_replicas_by_its_own_count() -> None:
    spec = replace(with_router(max_outstanding=1), replicas=2)
    requests = [request(number, 2.0, number, output=30) for number in range(10)]
    found = run(requests, spec, faults=outage(1.0, 60.0))
    assert outcomes(found) == {Outcome.FINISHED: 10}
    starts = sorted((each.placed_s, 1) for each in found.served)
    ends = [(each.end_s, -1) for each in found.served]
    at_once = most = 0
    for _, change in sorted([*starts, *ends]):
        at_once += change
        most = max(most, at_once)
    assert most == 2


def test_where_redis_comes_back_empty_requests_do_not_wait_for_heartbeats() -> None:
    found = run([request(0, 2.05, 1)], faults=outage(1.0, 2.01, empty=True))
    (served,) = found.served
    assert served.placed_s == served.arrival_s


def test_without_redis_short_prompts_are_spread_by_what_they_say() -> None:
    shorts = [
        replace(request(number, 2.0 + number), prompt=Short((number,))) for number in range(12)
    ]
    found = run(shorts, faults=outage(1.0, 60.0))
    assert len({each.replica for each in found.served}) == 3


@pytest.mark.parametrize("from_s", [3.5, 3.7, 3.9])
def test_an_outage_at_the_end_of_a_run_does_not_fail_it(from_s: float) -> None:
    requests = [request(number, 0.3 * number, number, output=20) for number in range(14)]
    found = run(requests, faults=outage(from_s, from_s + 0.3))
    assert outcomes(found) == {Outcome.FINISHED: 14}
    assert found.checks["leases are given back"] == 1


def test_several_routers_lose_no_request_in_an_outage() -> None:
    found = run(
        conversations(6, 8, 0.1), with_router(routers=4, max_outstanding=2), faults=outage(1.0, 2.0)
    )
    assert outcomes(found) == {Outcome.FINISHED: 48}
