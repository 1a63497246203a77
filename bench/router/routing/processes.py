"""Starts and ends the processes of a measurement, and measures their CPU time and memory."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

START_S = 60.0


@contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """The process, with everything it starts, until the block ends; its output goes to `log`."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(url: str, process: psutil.Process, log: Path, within_s: float = START_S) -> None:
    """Waits until `url` answers 200. Raises RuntimeError with the end of the log if it never
    does."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline and process.is_running():
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} never answered:\n{log.read_text(errors='replace')[-2000:]}")


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """CPU seconds of the processes and all their descendants so far."""
    total = 0.0
    for process in processes:
        for one in (process, *process.children(recursive=True)):
            used = one.cpu_times()
            total += float(used.user + used.system)
    return total


def memory_mib(processes: Sequence[psutil.Process]) -> float:
    """Resident memory of the processes and all their descendants."""
    used: int = sum(
        one.memory_info().rss
        for process in processes
        for one in (process, *process.children(recursive=True))
    )
    return used / 2**20
