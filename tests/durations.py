"""Keeps in pytest's cache which tests were slow in their last run; `--quick` skips them."""

from pathlib import Path

import pytest

QUICK_S = 0.1
"""Limit for the test's own code. Fixtures do not count, as they may be shared."""
SLOW = "pando/slow"


class Durations:
    """Records a run's slow tests at its end. Registered in the reporting process, which with xdist
    runs no tests."""

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
    """The ids of tests that took longer than `QUICK_S` in their last run."""
    return frozenset(cache.get(SLOW, ()))


def _without_group(nodeid: str) -> str:
    """xdist adds `@` and the group, if there is one."""
    head, _, group = nodeid.rpartition("@")
    return head if head and "]" not in group and "::" not in group else nodeid
