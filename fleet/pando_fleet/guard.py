"""Ends the processes that a parent started when the parent dies, even by SIGKILL.

`pando up` and simulations have one guard each: a separate process, started before all others. It
reads from a pipe whose other end its owner holds: "+PID" for each process group that starts, "-PID"
for each that has ended. When the pipe ends, which happens however the owner ends, it kills the
remaining groups and removes the owner's private directory. It runs as a plain script that imports
only the standard library, so that it costs little.

Each process announces itself, before its program begins: if its owner did it afterwards, it might
die in between. Until then the process holds the pipe, too, so the guard cannot miss it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

# `$$` is the process itself, also after `exec`.
_ANNOUNCE = 'echo "+$$" >&0 && exec "$@" </dev/null'


class Guard:
    """The owner's side of the guard. `close` returns when everything is cleaned up."""

    def __init__(self, private_directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(private_directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C must not reach it
        )

    @property
    def pipe(self) -> IO[bytes]:
        """Standard input for a command of `watched`."""
        assert self._process.stdin is not None
        return self._process.stdin

    def watched(self, command: Sequence[str]) -> tuple[str, ...]:
        """Wraps a command, so that its process group ends when this process does.

        Start it with `pipe` as its standard input, and in a process group of its own. The program
        itself gets an empty standard input.
        """
        return ("sh", "-c", _ANNOUNCE, "sh", *command)

    def forget(self, group: int) -> None:
        """The process group has ended; the system may reuse its number."""
        self.pipe.write(f"-{group}\n".encode())
        self.pipe.flush()

    def close(self) -> None:
        self._process.communicate()


def guard(private_directory: Path) -> None:
    """The guard's side: runs until standard input ends."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(private_directory, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
