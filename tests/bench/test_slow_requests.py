"""What `bench.simulator.slow_requests` says of the small trace."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.simulator.slow_requests import REASONS, main, story, table, watched
from pando.sim.plan import make_plan
from pando_sim.settings import SimSettings

SMALL = Path(__file__).parents[2] / "examples/traces/small.jsonl"


def test_what_was_missed_is_counted_and_explained() -> None:
    settings = SimSettings(
        trace=(str(SMALL),), policy=("cache_aware",), replicas=2, capacity_tokens=60_000, take=100
    )
    (task,) = make_plan(settings).tasks
    placed = watched(task)
    assert len(placed) == 100
    for one in placed:
        assert {each.replica for each in one.candidates} == {"replica-0", "replica-1"}
        assert one.chosen.matched_tokens <= one.holder.matched_tokens
        assert one.idlest.wait_s <= one.chosen.wait_s
        found = one.served.cached_tokens - one.chosen.matched_tokens
        assert one.not_there == max(0, -found)
    elsewhere = [one for one in placed if one.left_behind]
    assert elsewhere, "no request left what another replica held"
    assert all(one.holder is not one.chosen for one in elsewhere)
    head, *rows = [line for line in table(placed) if line]
    assert head.startswith("100 requests with ")
    assert len(rows) == 2 + len(REASONS)
    lines = list(story(elsewhere[0]))
    assert f"chosen {elsewhere[0].served.replica}: cost_s " in lines[1]
    assert f"holder {elsewhere[0].holder.replica}: cost_s " in lines[2]


def test_the_slowest_come_first() -> None:
    words = [str(SMALL), "--take", "40", "--replicas", "2", "--slowest", "3"]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    shown = [line for line in result.output.splitlines() if "first token after" in line]
    waits = [float(line.split("first token after ")[1].split(" s")[0]) for line in shown]
    assert len(waits) == 3
    assert waits == sorted(waits, reverse=True)


@pytest.mark.parametrize("words", [["--sessions", "2"], ["--sessions", "2", "--take", "3"]])
def test_sessions_need_a_trace_that_has_some(words: list[str]) -> None:
    result = CliRunner().invoke(main, [str(SMALL), *words])
    assert result.exit_code == 2
    assert "sessions" in result.output
