"""Guarantees of a run of a simulated fleet."""

import gc
import random
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan
from weakref import ReferenceType, ref

import numpy as np
import pytest
from numpy.typing import NDArray

from pando_router.core.route import Route
from pando_sim.fleet.control import FleetControl
from pando_sim.fleet.routing.context import Context, PolicyFactory
from pando_sim.fleet.routing.interfaces import Question
from pando_sim.policies import llm_d, vllm
from pando_sim.policies.local import route_to
from pando_sim.records import Outcome
from pando_sim.request import Request
from pando_sim.traces.prompts import KeyedPrompt
from tests.sim.fleet.world import (
    COST,
    SPEC,
    WORKER,
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


def test_a_lone_request_takes_what_its_steps_and_the_network_take() -> None:
    found = run([request(0, 1.0, *range(10), output=3)])
    (served,) = found.served
    way = SPEC.router.network_s
    first = 1.0 + way + COST.handling
    for start, count in ((0, 256), (256, 256), (512, 128)):
        first += COST.step_s(count, count * start + count * (count + 1) // 2, 0, 0)
    assert served.arrival_s == served.placed_s == 1.0
    assert served.first_token_s == pytest.approx(first + way, abs=1e-12)
    steps = [COST.step_s(0, 0, 1, context) for context in (641, 642)]
    assert served.end_s == pytest.approx(first + sum(steps) + way, abs=1e-12)
    assert served.longest_gap_s == pytest.approx(max(steps), abs=1e-12)
    assert (served.tries, served.output_tokens, served.cached_tokens) == (1, 3, 0)


def test_the_same_seed_gives_the_same_records_and_so_do_single_steps() -> None:
    spec = replace(with_router(routers=2), seed=3)
    first, again, single = (
        run(conversations(6, 8, 0.13), spec, strides=strides) for strides in (True, True, False)
    )
    assert repr(first.served) == repr(again.served) == repr(single.served)
    assert repr(first.samples) == repr(again.samples) == repr(single.samples)


def test_the_next_turn_goes_where_its_start_is_and_finds_it() -> None:
    served = by_number(run(conversations(3, 5, 1.5)))
    for turn in served[3:]:
        before = served[turn.number - 3]
        assert turn.replica == before.replica
        assert turn.cached_tokens == turn.matched_tokens == before.prompt_tokens


def test_a_request_that_waits_for_an_answer_comes_a_pause_after_its_end() -> None:
    first = request(0, 0.0, 1, 2, output=50)
    second = replace(request(1, 0.1, 1, 2, 3), after=0, pause_s=0.4)
    third = replace(request(2, 9.0, 1, 2, 3, 4), after=1, pause_s=0.4)
    a, b, c = by_number(run([first, second, third]))
    assert b.arrival_s == a.end_s + 0.4
    assert c.arrival_s == 9.0  # the trace says so, and the answer had ended long before


def test_a_trace_without_order_is_reported() -> None:
    with pytest.raises(ValueError, match="number 0 is due"):
        run([request(1, 0.0, 1)])
    with pytest.raises(ValueError, match="waits for a later one"):
        run([replace(request(0, 0.0, 1), after=0)])


def test_what_a_full_worker_refuses_is_tried_elsewhere() -> None:
    spec = with_worker(max_running_requests=1, engine={"max_queued_requests": 1})
    burst = [request(number, 0.0, number, output=200) for number in range(6)]

    class First:
        """Always chooses the first candidate."""

        def __init__(self, context: Context) -> None: ...

        async def place(self, question: Question) -> Route:
            return route_to(question, question.allowed[0], 0)

        def close(self) -> None: ...

    served = by_number(run(burst, spec, policy=First))
    # At each of three replicas one runs and one waits, except for early arrivals.
    assert {each.replica for each in served} == {"replica-0", "replica-1", "replica-2"}
    refused = [each for each in served if each.outcome is Outcome.REFUSED]
    assert all(each.tries == 3 and isnan(each.first_token_s) for each in refused)
    assert all(each.output_tokens == 200 for each in served if each not in refused)
    assert 1 <= len(refused) < 6


def test_what_a_dying_replica_had_goes_on_elsewhere_behind_its_tokens() -> None:
    died_s = 1.2  # between two heartbeats: what it made since the last one counts as well
    found = run(
        [request(0, 0.0, *range(4), output=100)],
        faults=[fault(died_s, lambda fleet: fleet.stop(busy(fleet), leaves=False))],
    )
    (served,) = found.served
    assert served.outcome is Outcome.FINISHED
    assert (served.tries, served.output_tokens) == (2, 100)
    assert served.first_token_s < died_s < served.end_s
    assert served.longest_gap_s > COST.step_s(256, 0, 0, 0)  # its prompt was computed again
    assert [event.what for event in found.events] == ["a fault"]


def test_a_request_whose_replicas_all_die_has_failed() -> None:
    def stop_all(fleet: FleetControl) -> None:
        for replica in fleet.replicas():
            fleet.stop(replica.name, leaves=False)

    found = run([request(0, 0.0, 1, output=100)], faults=[fault(0.5, stop_all)])
    (served,) = found.served
    assert served.outcome is Outcome.FAILED


def busy(fleet: FleetControl) -> str:
    return next(replica.name for replica in fleet.replicas() if replica.running)


def test_requests_are_served_while_redis_is_away_and_after_it() -> None:
    found = run(conversations(5, 10, 0.1), faults=outage(1.0, 3.0, empty=True))
    assert {each.outcome for each in found.served} == {Outcome.FINISHED}
    assert any(each.matched_tokens for each in found.served if each.placed_s > 4.0)
    away = [each for each in found.served if 1.0 < each.placed_s < 3.0]
    assert away
    assert not any(each.matched_tokens for each in away)


def test_a_request_without_a_place_waits_in_turn_and_is_refused_when_that_is_too_long() -> None:
    spec = with_router(max_outstanding=1, queue_deadline_s=2.0, queue_requests=5)
    burst = [request(number, 0.001 * number, number, output=50) for number in range(12)]
    found = run(burst, spec)
    served = by_number(found)
    assert [each.outcome for each in served[8:]] == [Outcome.REFUSED] * 4  # the queue was full
    assert all(each.placed_s == each.arrival_s for each in served[:3])
    placed = [each.placed_s for each in served[3:8] if not isnan(each.placed_s)]
    assert placed == sorted(placed)
    for each in served[3:8]:
        waited = each.end_s if isnan(each.placed_s) else each.placed_s
        assert waited - each.arrival_s <= 2.0
    assert max(sample.queued for sample in found.samples) > 0


def test_requests_for_a_pool_that_starts_wait_for_it() -> None:
    found = run(
        [request(0, 0.0, 1)],
        replace(SPEC, replicas=0),
        faults=[fault(0.5, lambda fleet: fleet.start("late", 3.0))],
    )
    (served,) = found.served
    assert served.outcome is Outcome.FINISHED
    assert 3.5 <= served.placed_s < 4.1  # the first heartbeat that says ready


def test_a_draining_replica_gets_nothing_new_and_finishes_what_it_has() -> None:
    requests = [request(number, 0.2 * number, number, output=60) for number in range(20)]
    found = run(requests, faults=[fault(1.0, lambda fleet: fleet.drain("replica-1"))])
    assert {each.outcome for each in found.served} == {Outcome.FINISHED}
    assert {each.replica for each in found.served if each.placed_s < 1.0} >= {"replica-1"}
    assert not [e for e in found.served if e.placed_s > 1.0 and e.replica == "replica-1"]
    assert found.samples[-1].draining == 1


def test_memory_is_reported_for_ready_replicas_only() -> None:
    requests = [request(n, 0.3 * n, *range(100 * n, 100 * n + 40), output=20) for n in range(24)]

    def drain_two(fleet: FleetControl) -> None:
        fleet.drain("replica-1")
        fleet.drain("replica-2")

    samples = run(requests, faults=[fault(6.0, drain_two)]).samples
    assert samples[-1].ready == 1
    assert samples[-1].cached_tokens > samples[-1].capacity_tokens / 2
    for sample in samples:
        assert sample.pinned_tokens + sample.cached_tokens <= sample.capacity_tokens


def test_a_slow_replica_takes_longer_from_the_moment_that_it_is() -> None:
    spec = replace(SPEC, replicas=1)
    alone = [request(0, 0.0, 1, output=200)]
    (normal,) = run(alone, spec).served
    at_s = (normal.first_token_s + normal.end_s) / 2
    (slow,) = run(
        alone, spec, faults=[fault(at_s, lambda fleet: fleet.slow_down("replica-0", 2.0))]
    ).served
    assert slow.first_token_s == normal.first_token_s
    assert slow.end_s - at_s == pytest.approx(2 * (normal.end_s - at_s), rel=0.02)


def test_what_is_promised_of_prompts_is_what_their_tokens_are() -> None:
    """Replicas report their bytes per token, as routers count in bytes."""
    chunks = np.arange(1, 41, dtype=np.uint64)
    twice = [
        replace(request(number, 3.0 * number), prompt=KeyedPrompt(chunks, 256 * 40, 2.5, number))
        for number in range(2)
    ]
    _, again = by_number(run(twice))
    assert again.cached_tokens > 0.95 * again.prompt_tokens
    assert again.matched_tokens == pytest.approx(again.cached_tokens, abs=WORKER.page_size)


def test_routers_share_what_they_know_by_redis_alone() -> None:
    def hits(routers: int) -> int:
        found = run(conversations(4, 10, 0.4), with_router(routers=routers))
        return sum(each.cached_tokens for each in found.served)

    # 4 conversations and 3 routers: each turn goes to another router.
    assert hits(3) == hits(1) > 0


def test_routers_clocks_do_not_count() -> None:
    requests = conversations(4, 10, 0.3)
    skewed = run(requests, with_router(routers=3, clock_skew_s=100.0))
    exact = run(requests, with_router(routers=3))
    assert repr(skewed.served) == repr(exact.served)


def test_samples_count_what_there_is() -> None:
    requests = conversations(6, 6, 0.2)
    found = run(requests)
    last = found.samples[-1]
    assert (last.arrived, last.finished, last.running, last.queued) == (36, 36, 0, 0)
    assert last.prompt_tokens == sum(each.prompt.num_tokens for each in requests)
    assert last.output_tokens == sum(each.output_tokens for each in requests)
    assert last.cached_prompt_tokens == sum(each.cached_tokens for each in found.served)
    computed = last.prompt_tokens - last.cached_prompt_tokens
    assert sum(last.prefilled_by_replica) == computed
    assert last.replica_seconds == pytest.approx(3 * last.at_s)
    assert found.checks["pools add up"] >= 3 * len(found.samples)


def _closed_loop(count: int) -> list[Request]:
    first = request(0, 0.0, 1)
    return [first, *(replace(request(n, 0.0, 1, n), after=n - 1) for n in range(1, count))]


def test_a_closed_loop_has_one_request_at_a_time() -> None:
    served = by_number(run(_closed_loop(15)))
    for before, after in pairwise(served):
        assert after.arrival_s == before.end_s


def test_nothing_of_a_request_that_has_ended_waits_for_the_garbage_collector() -> None:
    asked: list[ReferenceType[NDArray[np.int32]]] = []

    @dataclass(frozen=True)
    class Watched(Words):
        def tokens(self) -> NDArray[np.int32]:
            tokens = Words.tokens(self)
            asked.append(ref(tokens))
            return tokens

    requests = [replace(request(n, n * 0.1), prompt=Watched((1, n))) for n in range(8)]
    gc.disable()
    try:
        run(requests)
        assert len(asked) >= 8
        assert all(found() is None for found in asked)
    finally:
        gc.enable()


@pytest.mark.parametrize("policy", [llm_d.LLM_D.factory(SPEC), vllm.VLLM.factory(SPEC)])
def test_how_often_samples_are_taken_changes_nothing(policy: PolicyFactory) -> None:
    """Not even for policies that read replicas in the middle of a step."""
    rng = random.Random(13)
    times = sorted(rng.uniform(0, 20) for _ in range(100))
    requests = [
        request(n, at_s, *range(200 * n, 200 * n + rng.randint(10, 60)), output=rng.randint(5, 80))
        for n, at_s in enumerate(times)
    ]
    found = [run(requests, replace(SPEC, sample_s=s), policy=policy) for s in (0.7, 5.0)]
    assert len({repr(each.served) for each in found}) == 1
