"""What `pando up` starts: the commands of its parts."""

import os
import socket
from pathlib import Path

import pytest

from pando.up.free_port import free_port
from pando.up.plan import UpPlan
from pando_worker import cores


@pytest.mark.parametrize(("workers", "threads"), [(1, "6"), (2, "3"), (8, "1")])
def test_workers_share_the_cores_of_the_quota(
    workers: int, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text("600000 100000\n")
    monkeypatch.setattr(cores, "CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.delenv("PANDO_WORKER_THREADS", raising=False)
    plan = UpPlan(
        model=str(tmp_path),
        workers=workers,
        host="127.0.0.1",
        port=8080,
        redis=None,
        drain_seconds=1,
        log_level="info",
    )
    commands = plan.worker_commands("redis://127.0.0.1:6379")
    found = [one.arguments[one.arguments.index("--threads") + 1] for one in commands]
    assert found == [threads] * workers


def test_a_free_port_is_none_that_linux_picks_for_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    first_picked = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = free_port()
    assert 1024 <= port < first_picked
    monkeypatch.setattr("pando.up.free_port.PORTS", range(port, port + 2))
    monkeypatch.setattr("pando.up.free_port._TRIES", 2)
    with socket.create_server(("127.0.0.1", port)):
        assert {free_port() for _ in range(20)} == {port + 1}
