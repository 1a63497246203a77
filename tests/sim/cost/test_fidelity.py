"""The fidelity check's input for both sides, and its summary of their answers."""

from itertools import combinations, takewhile
from pathlib import Path

import pytest

from bench.simulator.sim_fidelity.measured import Answer, Outcome
from bench.simulator.sim_fidelity.simulated import answers
from bench.simulator.sim_fidelity.workload import (
    CHUNK_TOKENS,
    OWN_TOKENS,
    SHARED_CHUNKS,
    alone_s,
    at_rate,
    make,
    write,
)
from pando_sim.cost import load
from pando_sim.traces import open_trace


def test_the_simulator_reads_the_tokens_and_times_that_the_fleet_gets(tmp_path: Path) -> None:
    asks = at_rate(make(requests=30, groups=3, seed=7), per_s=2.0)
    path = tmp_path / "trace.jsonl"
    write(asks, path)
    read = list(open_trace(path))
    assert [one.prompt.tokens().tolist() for one in read] == [ask.prompt for ask in asks]
    assert [one.output_tokens for one in read] == [ask.output_tokens for ask in asks]
    # A trace begins with its first request.
    assert [one.at_s for one in read] == pytest.approx([a.at_s - asks[0].at_s for a in asks])


def test_prompts_share_their_groups_beginning_and_nothing_else() -> None:
    asks = make(requests=40, groups=4, seed=7)
    least = CHUNK_TOKENS * SHARED_CHUNKS.start
    groups: dict[tuple[int, ...], list[list[int]]] = {}
    for ask in asks:
        groups.setdefault(tuple(ask.prompt[:least]), []).append(ask.prompt)
    assert len(groups) == 4
    for prompts in groups.values():
        shared = min(_shared(one, other) for one, other in combinations(prompts, 2))
        longest = max(map(len, prompts))
        assert longest - OWN_TOKENS[1] <= shared <= min(map(len, prompts)) - OWN_TOKENS[0]


def _shared(one: list[int], other: list[int]) -> int:
    """How many leading tokens are equal."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


async def test_a_request_alone_takes_as_long_as_the_rate_is_made_from(tmp_path: Path) -> None:
    cost = load("cpu-pando-tiny")
    asks = make(requests=1, groups=1, seed=7)
    path = tmp_path / "trace.jsonl"
    write(asks, path)
    (answer,) = await answers(path, "round_robin", cost, replicas=1)
    assert answer.end_s == pytest.approx(alone_s(asks, cost))


def test_at_another_rate_the_same_is_asked() -> None:
    asks = make(requests=300, groups=3, seed=7)
    faster = at_rate(asks, per_s=5.0)
    assert [(a.prompt, a.output_tokens) for a in faster] == [
        (a.prompt, a.output_tokens) for a in asks
    ]
    assert len(faster) / faster[-1].at_s == pytest.approx(5 * len(asks) / asks[-1].at_s)


def test_an_outcome_sums_up_answers() -> None:
    given = [
        Answer(ttft_s=0.1 * n, end_s=1.0 + n, prompt_tokens=100, cached_tokens=10 * n, replica=name)
        for n, name in ((1, "a"), (2, "b"), (3, "b"), (4, "b"))
    ]
    outcome = Outcome.of(given)
    assert outcome.hit_rate == pytest.approx(0.25)
    assert outcome.ttft_p50_s == pytest.approx(0.25)
    assert outcome.ttft_mean_s == pytest.approx(0.25)
    assert outcome.end_mean_s == pytest.approx(3.5)
    assert outcome.busiest_share == 0.75


def test_the_mean_of_outcomes_is_that_of_each_number() -> None:
    one, other = (Outcome(*(10.0 * n + number for number in range(6))) for n in (1, 2))
    assert Outcome.mean([one, other]) == Outcome(*(15.0 + number for number in range(6)))
