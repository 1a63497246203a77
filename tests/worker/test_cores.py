"""The available cores are those that the process may run on, within the container's quota."""

import os
from pathlib import Path

import pytest

from pando_worker import cores
from pando_worker.cores import available_cores


@pytest.fixture
def cpu_max(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file with the quota of this process, which may run on four cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6, 9})
    monkeypatch.setattr(cores, "CPU_MAX", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000\n", 4),
        ("200000 100000\n", 2),
        ("390000 100000\n", 3),
        ("50000 100000\n", 1),  # half a core
        ("25000 10000\n", 2),
        ("6400000 100000\n", 4),  # a quota above what it may run on
    ],
)
def test_a_quota_limits_the_cores(cpu_max: Path, quota: str, expected: int) -> None:
    cpu_max.write_text(quota)
    assert available_cores() == expected


def test_without_a_quota_it_is_the_cores_that_the_process_may_run_on(cpu_max: Path) -> None:
    assert not cpu_max.exists()
    assert available_cores() == 4


def test_this_process_may_use_some() -> None:
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))
