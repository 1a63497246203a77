"""Ends the processes that another one has started when that one dies, even by SIGKILL.

`pando up` and simulations have one each: a process of its own, started before all others. It reads
from a pipe whose other end only its owner holds: "+PID" for each process group that starts, "-PID"
for each that ended. At the pipe's end, which comes however the owner ends, it kills the groups that
are left and removes the owner's private directory. Runs as a plain script on the standard library
alone, so that it costs little.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path


class Guard:
    """The owner's side of the guard. `close` returns when all is cleaned up."""

    def __init__(self, private_directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(private_directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # the terminal's Ctrl-C is not for it
        )

    def watch(self, group: int) -> None:
        """The process group is to die with us."""
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """The process group has ended; its number may be reused by strangers."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


def guard(private_directory: Path) -> None:
    """The guard's own side: runs until standard input ends."""
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
        with contextlib.suppress(ProcessLookupError):  # it ended at the same moment
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(private_directory, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
