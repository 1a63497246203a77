"""Which runs are on the front: no rival has fewer late requests for no more replica-hours."""

from collections.abc import Sequence
from itertools import pairwise

from bench.simulator.scaling_days.contenders import PANDO
from bench.simulator.scaling_days.runs import Result


def front(results: Sequence[Result]) -> list[Result]:
    """The runs that no other one dominates, from the cheapest to the most expensive."""
    kept: list[Result] = []
    for one in sorted(results, key=lambda one: (one.replica_hours, one.violations)):
        if not kept or one.violations < kept[-1].violations:
            kept.append(one)
    return kept


def rivals(results: Sequence[Result]) -> list[Result]:
    """The runs of scalers other than Pando's."""
    return [one for one in results if one.scaler not in PANDO]


def hours_on(front: Sequence[Result], violations: float) -> float | None:
    """Replica-hours that a front pays for `violations`, interpolated linearly between its runs;
    None if it has no run with so few."""
    if not front or violations < front[-1].violations:
        return None
    if violations >= front[0].violations:
        return front[0].replica_hours
    for cheap, dear in pairwise(front):
        if dear.violations <= violations <= cheap.violations:
            share = (cheap.violations - violations) / (cheap.violations - dear.violations)
            return cheap.replica_hours + share * (dear.replica_hours - cheap.replica_hours)
    raise AssertionError("the front's runs have no gaps")


def against(one: Result, others: Sequence[Result]) -> float | None:
    """Replica-hours compared with the others' front at the same violations, as a share of those."""
    hours = hours_on(front(others), one.violations)
    return None if hours is None else one.replica_hours / hours - 1
