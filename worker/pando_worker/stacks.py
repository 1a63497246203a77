"""The Python stacks of a worker's processes, for the log when the engine stands still.

Each process of the engine calls `answer_with_stacks` as it starts; `stacks` asks all of them. What
answers is faulthandler's C code, so a thread that holds the interpreter's lock for ever is seen,
too. A process that was stopped, or hangs in the kernel, cannot answer.
"""

import faulthandler
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ASK = signal.SIGUSR1
_SUFFIX = ".stacks"
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Stacks:
    process: str  # such as "rank 1"
    pid: int
    text: str  # of all its threads, or why there are none


def answer_with_stacks(directory: Path, process: str) -> None:
    """Have this process write the stacks of all its threads to a file there at each `ASK`."""
    file = (directory / f"{process}.{os.getpid()}{_SUFFIX}").open("w")
    faulthandler.register(ASK, file, all_threads=True)


def stacks(directory: Path, within_s: float) -> Iterator[Stacks]:
    """Of each process that answers there, by name. Waits `within_s` for all of them together."""
    files = sorted(directory.glob(f"*{_SUFFIX}"))
    for file in files:
        with suppress(ProcessLookupError):
            os.kill(_pid(file), ASK)
    deadline = time.monotonic() + within_s
    for file in files:
        process, pid = file.name.split(".")[0], _pid(file)
        text = _written(file, deadline)
        yield Stacks(process, pid, text or f"none within {within_s:g} s: {_state(pid)}")


def _pid(file: Path) -> int:
    return int(file.name.split(".")[1])


def _written(file: Path, deadline: float) -> str:
    """What it holds once it grows no more."""
    text = ""
    while time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        before, text = text, file.read_text(errors="replace")
        if text and text == before:
            return text
    return text


def _state(pid: int) -> str:
    """What the kernel says of a process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "the process is gone, or this system does not say how it is"
    return next(line for line in status.splitlines() if line.startswith("State:"))
