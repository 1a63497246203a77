"""The benchmark of policies: its definition of load, its comparison, and resuming a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.simulator.placement_cells.cells import CELLS, SHARES, SMALL_CELLS, Cell, Trace
from bench.simulator.placement_cells.loads import CHUNK_TOKENS, answer_s, demand, prompt_s
from bench.simulator.placement_cells.results import Measures, Play, Results
from bench.simulator.placement_cells.table import GOALS, tables
from pando_sim.cost import load
from pando_worker.scheduler.batches.context_cost import attended
from tests.sim.fleet.world import request

COST = load("h100-llama-3.1-8b-fp8")
CELL = Cell(trace=Trace.SMALL, replicas=4, capacity_tokens=120_000, load=0.8)


def _play(policy: str, share: float = 1.0, **values: float) -> Play:
    fields = {"goodput": 0.9, "hit_rate": 0.5, "ttft_p50_s": 0.1, "ttft_p99_s": 1.0}
    return Play(
        cell=CELL.name,
        policy=policy,
        share=share,
        command="pando sim",
        requests=10,
        lost=0,
        measures=Measures(gap_p99_s=0.02, load_spread=1.0, **(fields | values)),
    )


def test_a_prompt_takes_its_chunks_and_an_answer_what_it_adds_to_them() -> None:
    more = COST.step_s(prefill_tokens=100, prefill_context=attended(CHUNK_TOKENS, 100))
    first = COST.step_s(prefill_tokens=CHUNK_TOKENS, prefill_context=attended(0, CHUNK_TOKENS))
    assert prompt_s(CHUNK_TOKENS + 100, COST) == pytest.approx(first + more)
    assert answer_s(1_000, 1, COST) == 0
    step = COST.file.step
    each = step.token_s + step.decode_row_s
    seen = (1_001 + 1_002) * step.decode_context_s
    assert answer_s(1_000, 3, COST) == pytest.approx(2 * each + seen, rel=1e-3)


def test_at_full_load_a_fleet_has_just_the_time_for_what_comes() -> None:
    asked = demand([request(n, 0.5 * n, *range(20)) for n in range(9)], COST)
    assert asked.requests_per_s == 2.0
    rate = asked.requests_per_s * asked.speed(1.0, replicas=8)
    assert rate * asked.seconds_per_request == pytest.approx(8)
    assert asked.speed(0.5, 8) == pytest.approx(asked.speed(1.0, 8) / 2)


def test_requests_at_one_moment_have_no_rate() -> None:
    with pytest.raises(ValueError, match="no rate"):
        demand([request(0, 0.0, 1)], COST)


def test_goals_are_met_within_their_shares_of_the_best() -> None:
    goodput, ttft, hits = GOALS
    assert goodput.is_met(0.882, 0.9)
    assert not goodput.is_met(0.88, 0.9)
    assert ttft.is_met(1.02, 1.0)
    assert not ttft.is_met(1.03, 1.0)
    assert hits.is_met(0.486, 0.5)
    assert not hits.is_met(0.484, 0.5)


def test_a_goal_that_is_not_met_is_said(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(_play("cache_aware", hit_rate=0.4))
    results.add(_play("smg", goodput=0.8))
    (row,) = [line for line in tables([CELL], results).splitlines() if CELL.name in line]
    assert "40.0 % **lost** | 50.0 % smg" in row
    assert row.count("**lost**") == 1


def test_what_was_simulated_is_not_simulated_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).add(_play("smg"))
    again = Results(path)
    assert again.has(CELL.name, "smg", 1.0)
    assert not again.has(CELL.name, "smg", 1.03)
    assert not again.has(CELL.name, "llm_d", 1.0)
    assert again.of(CELL.name) == {"smg": _play("smg").measures}


def test_a_cell_is_the_mean_of_its_runs(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    for share, goodput in zip(SHARES, (0.9, 0.8, 0.4), strict=True):
        results.add(_play("smg", share, goodput=goodput))
    assert results.of(CELL.name)["smg"].goodput == pytest.approx(0.7)


def test_cells_have_names_of_their_own() -> None:
    every = (*CELLS, *SMALL_CELLS)
    assert len({cell.name for cell in every}) == len(every)
    assert replace(CELL, slow=1.15).name != CELL.name
