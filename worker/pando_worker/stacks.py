"""The Python stacks of a worker's processes, for the log when the engine has stalled.

Each process of the engine calls `dump_stacks_on_signal` at its start; `stacks` sends all of them
the signal. faulthandler's C code handles it, so it also shows a thread that holds the interpreter's
lock forever. A process that is stopped, or hangs in the kernel, cannot answer.
"""

import faulthandler
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STACKS_SIGNAL = signal.SIGUSR1
_SUFFIX = ".stacks"
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Stacks:
    process: str  # such as "rank 1"
    pid: int
    text: str  # the stacks of all its threads, or why there are none


def dump_stacks_on_signal(directory: Path, process: str) -> None:
    """Have this process write all its threads' stacks to a file there at each STACKS_SIGNAL."""
    file = (directory / f"{process}.{os.getpid()}{_SUFFIX}").open("w")
    faulthandler.register(STACKS_SIGNAL, file, all_threads=True)


def stacks(directory: Path, within_s: float) -> Iterator[Stacks]:
    """The stacks of each process that answers there, by name; waits `within_s` in total."""
    files = sorted(directory.glob(f"*{_SUFFIX}"))
    for file in files:
        with suppress(ProcessLookupError):
            os.kill(_pid(file), STACKS_SIGNAL)
    deadline = time.monotonic() + within_s
    for file in files:
        process, pid = file.name.split(".")[0], _pid(file)
        text = _written(file, deadline)
        yield Stacks(process, pid, text or f"none within {within_s:g} s: {_state(pid)}")


def _pid(file: Path) -> int:
    return int(file.name.split(".")[1])


def _written(file: Path, deadline: float) -> str:
    """The file's text once it has stopped growing."""
    text = ""
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        before, text = text, file.read_text(errors="replace")
        if text and text == before:
            return text
    return text


def _state(pid: int) -> str:
    """The state that the kernel reports for a process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "the process is gone, or this system does not report its state"
    return next(line for line in status.splitlines() if line.startswith("State:"))
