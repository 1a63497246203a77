"""Ends the processes that a parent started when the parent dies, even by SIGKILL.

`pando up` and simulations have one guard each: a separate process, started before all others. It
reads from a pipe whose other end only its owner holds: "+PID" for each process group that starts,
"-PID" for each that has ended. When the pipe ends, which happens however the owner ends, it kills
the remaining groups and removes the owner's private directory. It runs as a plain script that
imports only the standard library, so that it costs little.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path


class Guard:
    """The owner's side of the guard. `close` returns when everything is cleaned up."""

    def __init__(self, private_directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(private_directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C must not reach it
        )

    def watch(self, group: int) -> None:
        """The process group must end when this process does."""
        self._send(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The process group has ended; the system may reuse its number."""
        self._send(f"-{group}\n")

    def close(self) -> None:
        self._process.communicate()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


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
