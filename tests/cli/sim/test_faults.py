"""Faults in words."""

import pytest

from pando.sim.faults import FaultError, parse_fault


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
     "redis:x@1", "clock:one:5@1", "die:a:b@1"],
)  # fmt: skip
def test_what_is_no_fault_is_refused_with_all_forms(text: str) -> None:
    with pytest.raises(FaultError, match="slow:NAME:FACTOR@AT"):
        parse_fault(text)
