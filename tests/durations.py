"""Which tests took long when they last ran, kept in pytest's cache: `--quick` leaves them out."""

from pathlib import Path

import pytest

QUICK_S = 0.3
"""Of the test's own code. What its fixtures took counts for nobody: they may be shared."""
SLOW = "pando/slow"


class Durations:
    """Notes at the end of a run which of its tests took long. Registered in the process that
    reports, which with xdist is not one of those that run tests."""

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._took_s: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self._took_s[_without_group(report.nodeid)] = report.duration

    def pytest_sessionfinish(self) -> None:
        if not self._took_s:
            return
        before = {name for name in slow(self._cache) if Path(name.partition("::")[0]).exists()}
        found = {name for name, seconds in self._took_s.items() if seconds > QUICK_S}
        self._cache.set(SLOW, sorted((before - self._took_s.keys()) | found))


def slow(cache: pytest.Cache) -> frozenset[str]:
    """The ids of the tests that took longer than `QUICK_S` when they last ran."""
    return frozenset(cache.get(SLOW, ()))


def _without_group(nodeid: str) -> str:
    """xdist adds `@` and the group, if there is one."""
    head, _, group = nodeid.rpartition("@")
    return head if head and "]" not in group and "::" not in group else nodeid
