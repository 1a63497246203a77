"""Targets of latency: the sizes that they ask for, against queues that are played request by
request, and engines whose speed is known."""

import heapq
import json
import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pando_operator.resource.policy import ScalingPolicy, Target
from pando_operator.scaling import (
    Decision,
    History,
    Signals,
    Snapshot,
    decide,
    from_status,
    to_status,
)
from pando_operator.scaling.proposals.latency import INTER_TOKEN, TTFT
from tests.operator.scaling.pool_model import AT_ONCE, CAPACITY, NOBODY, NOW, changed, load

ALONE_S, MORE_S = 0.010, 0.002  # a token's time alone, and more for each request of the batch
PREFILL = 10_000.0  # prompt tokens a second
EVERY_S = 5.0
POLICY = ScalingPolicy(max_replicas=50, behavior=AT_ONCE, window_seconds=60)


@dataclass
class Engines:
    """Replicas of known speed under an even load, as their heartbeats report it."""

    replicas: int
    prompts_per_s: float  # of all
    prompt_tokens: float = 2_000.0
    variation: float = 0.0  # squared coefficient of variation of the prompts' tokens
    answer_tokens: float = 100.0
    now_s: float = NOW
    history: History = field(default_factory=History)
    totals: dict[str, float] = field(default_factory=dict)

    def batch(self, factor: float) -> float:
        """Requests that decode at once in each replica, under that part of the mean load."""
        each_per_s = factor * self.prompts_per_s * self.answer_tokens / self.replicas
        return each_per_s * ALONE_S / (1 - each_per_s * MORE_S)

    def look(self, policy: ScalingPolicy, factor: float = 1.0) -> Decision:
        """`factor` is the load of this moment as a part of the mean."""
        self.now_s += EVERY_S
        decoded = factor * self.prompts_per_s * self.answer_tokens / self.replicas * EVERY_S
        batch = self.batch(factor)
        prompts = factor * self.prompts_per_s / self.replicas * EVERY_S
        computed = prompts * self.prompt_tokens
        for name, more in {
            "prompts_total": prompts,
            "prompt_tokens_total": computed,
            "computed_squares_total": computed * self.prompt_tokens * (1 + self.variation),
            "decoded_tokens_total": decoded,
            "decode_seconds_total": decoded * (ALONE_S + MORE_S * batch),
        }.items():
            self.totals[name] = self.totals.get(name, 0.0) + more
        whole = ("prompts_total", "prompt_tokens_total", "decoded_tokens_total")
        beat: dict[str, Any] = {
            name: int(total) if name in whole else total for name, total in self.totals.items()
        }
        loads = tuple(
            load(
                f"r{i}",
                round(batch * self.prompt_tokens),
                running=round(batch),
                prefill_tokens_per_s=PREFILL,
                capacity_tokens=10 * CAPACITY,
                **beat,
            )
            for i in range(self.replicas)
        )
        snapshot = Snapshot(
            current=self.replicas,
            ready=self.replicas,
            signals=Signals(loads, NOBODY),
            start_s=60.0,
            history=self.history,
        )
        decision = decide(snapshot, policy, self.now_s)
        self.history = decision.history
        return decision

    def run(self, policy: ScalingPolicy, looks: int = 60) -> Decision:
        """A load that swings by a fifth, so that there is a slope to see."""
        for step in range(looks):
            decision = self.look(policy, 1 + 0.2 * math.sin(step))
        return decision


def proposed(decision: Decision, by: str) -> int:
    return next(one.replicas for one in decision.proposals if one.by == by)


def played_ttft_s(
    servers: int, per_s: float, mean_s: float, variation: float, percentile: float
) -> float:
    """Of the prompts at that many replicas with one queue, in their order."""
    draw, free = random.Random(1), [0.0] * servers
    sigma = math.sqrt(math.log1p(variation))
    at_s, found = 0.0, []
    for _ in range(60_000):
        at_s += draw.expovariate(per_s)
        own_s = mean_s * math.exp(sigma * draw.gauss(0, 1) - sigma**2 / 2)
        end_s = max(at_s, heapq.heappop(free)) + own_s
        heapq.heappush(free, end_s)
        found.append(end_s - at_s)
    found.sort()
    return found[int(percentile * len(found))]


@pytest.mark.parametrize(
    ("per_s", "tokens", "variation", "target_s"),
    [
        (30.0, 2_000, 1.0, 1.0),
        (30.0, 2_000, 0.0, 0.4),
        (8.0, 9_000, 0.5, 3.0),
        (3.0, 500, 2.0, 0.3),
    ],
)
def test_the_size_for_first_tokens_is_what_a_played_queue_needs(
    per_s: float, tokens: float, variation: float, target_s: float
) -> None:
    policy = changed(POLICY, target=Target(ttft_seconds=target_s, percentile=90.0))
    engines = Engines(12, per_s, tokens, variation, answer_tokens=5.0)
    size = proposed(engines.run(policy), TTFT)
    needed = next(
        servers
        for servers in range(math.ceil(per_s * tokens / PREFILL), 60)
        if played_ttft_s(servers, per_s, tokens / PREFILL, variation, 0.9) <= target_s - ALONE_S
    )
    assert abs(size - needed) <= max(1, 0.1 * needed)


@pytest.mark.parametrize("target_s", [0.014, 0.02, 0.03])
def test_the_size_for_the_time_between_tokens_follows_from_the_engine_s_speed(
    target_s: float,
) -> None:
    policy = changed(POLICY, target=Target(inter_token_seconds=target_s, percentile=50.0))
    engines = Engines(8, 20.0)  # 250 tokens a second each: 5 at once, 20 ms
    size = proposed(engines.run(policy), INTER_TOKEN)
    needed = next(
        size
        for size in range(1, 200)
        if (load := 2_000 / size) * MORE_S < 1
        and ALONE_S + MORE_S * load * ALONE_S / (1 - load * MORE_S) <= target_s
    )
    assert abs(size - needed) <= 1


def test_the_reason_says_what_each_size_would_do() -> None:
    policy = changed(POLICY, target=Target(inter_token_seconds=0.0154, percentile=50.0))
    decision = Engines(8, 20.0).run(policy)
    assert decision.by == INTER_TOKEN
    assert decision.reason == (
        "tokens every 20 ms on 8 and 15 ms on 12 at p50, target 15 ms: wants 12"
    )


def test_the_reason_says_that_no_size_meets_a_target() -> None:
    """Waits are kept short then; faster tokens than an idle engine's are not tried for."""
    policy = changed(POLICY, target=Target(ttft_seconds=0.1, inter_token_seconds=0.001))
    decision = Engines(8, 5.0).run(policy)
    assert INTER_TOKEN not in {one.by for one in decision.proposals}
    assert 1 < proposed(decision, TTFT) < 8
    alone = "no size meets ttftSeconds 0.1: without any load it would be 213 ms at p95"
    assert f"{alone}, sized for 234 ms" in decision.reason
    assert "no size meets interTokenSeconds 0.001" in decision.reason


def test_before_anything_is_learned_pressure_decides_and_the_reason_says_so() -> None:
    policy = changed(POLICY, target=Target(ttft_seconds=1.0, inter_token_seconds=0.05))
    decision = Engines(8, 0.0).run(policy, looks=3)
    assert "latency is not learned yet" in decision.reason


def test_what_was_learned_outlives_the_operator() -> None:
    policy = changed(POLICY, target=Target(inter_token_seconds=0.015, percentile=50.0))
    engines = Engines(8, 20.0)
    before = engines.run(policy).history.pace
    recalled = from_status(json.loads(json.dumps(to_status(engines.history))))
    assert recalled.pace.line == pytest.approx(before.line, rel=0.01)
    assert recalled.pace.prompt_tokens == pytest.approx(before.prompt_tokens)


def test_an_idle_pool_s_status_does_not_change() -> None:
    engines = Engines(2, 20.0)
    engines.run(POLICY)
    engines.prompts_per_s = 0.0
    engines.look(POLICY)
    before = engines.history.pace
    engines.look(POLICY)
    assert engines.history.pace == before


def test_targets_of_latency_wake_no_pool() -> None:
    policy = changed(POLICY, min_replicas=0, idle_seconds=600, target=Target(ttft_seconds=1.0))
    engines = Engines(2, 20.0)
    engines.run(policy)
    asleep = Snapshot(
        current=0, ready=0, signals=Signals((), NOBODY), start_s=60.0, history=engines.history
    )
    assert decide(asleep, policy, engines.now_s + 5).desired == 0
    assert decide(replace(asleep, signals=None), policy, engines.now_s + 5).desired == 0
