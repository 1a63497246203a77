"""Faults in words."""

import pytest

from pando.sim.faults import FaultError, Stage, check_faults, parse_fault
from tests.sim.fleet.world import conversations, run

FIXED = Stage(replicas=4, is_scaled=False, routers=2, last_s=60.0)
SCALED = Stage(replicas=4, is_scaled=True, routers=2, last_s=60.0)


@pytest.mark.parametrize(
    ("text", "at_s", "what"),
    [
        ("die:replica-1@600", 600.0, "replica-1 dies"),
        ("join:late@1.5", 1.5, "late is started"),
        ("slow:replica-0:2@10", 10.0, "replica-0 takes 2 times as long"),
        ("redis:30@0", 0.0, "Redis is away for 30 s"),
        ("redis-lost:30@7", 7.0, "Redis is away for 30 s, and comes back empty"),
        ("clock:0:-5@60", 60.0, "the clock of router 0 is set -5 s ahead"),
    ],
)
def test_a_fault_is_read(text: str, at_s: float, what: str) -> None:
    fault = parse_fault(text)
    assert (fault.at_s, fault.what) == (at_s, what)


@pytest.mark.parametrize(
    "text",
    ["", "die", "die:@3", "die:a", "die:a@-1", "die:a@nan", "slow:a:0@1", "slow:a@1", "eat:a@1",
     "redis:x@1", "clock:one:5@1", "clock:0:nan@1", "die:a:b@1"],
)  # fmt: skip
def test_what_is_no_fault_is_refused_with_all_forms(text: str) -> None:
    with pytest.raises(FaultError, match="slow:NAME:FACTOR@AT"):
        parse_fault(text)


@pytest.mark.parametrize(
    "texts",
    [["die:replica-3@60", "clock:1:5@0"], ["join:late@1", "slow:late:2@9", "die:late@30"]],
)
def test_what_can_happen_is_not_refused(texts: list[str]) -> None:
    check_faults(texts, FIXED)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("die:replica-4@1", "replica-0 to replica-3"),
        ("slow:late:2@1", "no replica 'late'"),
        ("clock:2:5@1", "no router 2"),
        ("redis:5@61", "the last request, which arrives at 60 s"),
    ],
)
def test_what_cannot_happen_is_refused(text: str, said: str) -> None:
    with pytest.raises(FaultError, match=said):
        check_faults(["die:replica-0@1", text], FIXED)


def test_a_scaled_pool_may_have_any_number_of_replicas_at_a_time() -> None:
    check_faults(["die:replica-9@1"], SCALED)
    with pytest.raises(FaultError):
        check_faults(["die:nobody@1"], SCALED)


def test_a_run_says_what_happened_and_what_could_not() -> None:
    texts = ["die:replica-1@1", "die:replica-1@1.5", "slow:replica-1:2@2", "join:replica-0@2.5"]
    found = run(conversations(5, 10, 0.1), faults=[parse_fault(text) for text in texts])
    assert [event.what for event in found.events] == [
        "replica-1 dies",
        "replica-1 dies: no, it does not exist",
        "replica-1 takes 2 times as long: no, it does not exist",
        "replica-0 is started: no, it already exists",
    ]


def test_redis_is_away_until_the_last_outage_is_over() -> None:
    both = [parse_fault(text) for text in ("redis:2@1", "redis-lost:0.5@1.5")]
    found = run(conversations(5, 10, 0.1), faults=both)
    away = [each for each in found.served if 1.0 < each.placed_s < 3.0]
    assert any(each.placed_s > 2.5 for each in away)
    assert not any(each.matched_tokens for each in away)
    assert any(each.matched_tokens for each in found.served if each.placed_s > 3.5)
