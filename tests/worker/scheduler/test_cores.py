"""The cores to count on are those that the process may run on, within the container's quota."""

import os
from pathlib import Path

import pytest

from pando_worker.scheduler.cores import available_cores


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6, 9})


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", 4),
        ("200000 100000\n", 2),
        ("390000 100000\n", 3),
        ("50000 100000\n", 1),  # half a core
        ("25000 10000\n", 2),
        ("6400000 100000\n", 4),  # a quota above what it may run on
    ],
)
def test_a_quota_limits_the_cores(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert available_cores(tmp_path / "cpu.max") == cores


@pytest.mark.usefixtures("four_cores")
def test_without_a_quota_it_is_the_cores_that_the_process_may_run_on(tmp_path: Path) -> None:
    assert available_cores(tmp_path / "cpu.max") == 4


def test_this_process_may_use_some() -> None:
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))
