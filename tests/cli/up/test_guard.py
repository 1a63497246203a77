"""The fleet ends even if `pando up` is killed and cannot clean up."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.waiting import PATIENCE_S, is_running, read_each, until

SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from pando_fleet.guard import Guard
from pando.up.part import Part
from pando.up.process import Command

CHILD = (
    "import os, subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print(os.getpid(), child.pid, flush=True);"
    "time.sleep(600)"
)

async def main():
    guard = Guard(Path(sys.argv[1]))
    command = Command("part", (sys.executable, "-c", CHILD), {})
    await Part(command, guard, lambda name, line: print(line, flush=True)).kept.start()

asyncio.run(main())
"""


def test_all_processes_and_the_directory_go_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "private"
    directory.mkdir()
    (directory / "redis.sock").touch()
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    pids = [int(pid) for pid in supervisor.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(is_running, pids))

    supervisor.send_signal(signal.SIGKILL)
    supervisor.communicate()

    until(lambda: not any(map(is_running, pids)), f"{pids} have ended")
    until(lambda: not directory.exists(), "the directory is gone")


# The owner dies when its child has begun, before anything else that it does.
DIES = """
import os, signal, subprocess
fork_exec = subprocess._fork_exec

def strike(arguments, *more):
    pid = fork_exec(arguments, *more)
    if "-I" not in arguments:  # it is not the guard
        os.kill(os.getpid(), signal.SIGKILL)
    return pid

subprocess._fork_exec = strike
"""
VALKEY = """
from pando_sim.fleet.redis.server import valkey
with valkey():
    pass
"""


@pytest.mark.parametrize(
    "owner", [SUPERVISOR, VALKEY], ids=["a part of pando up", "a simulation's Valkey"]
)
def test_what_its_owner_has_just_started_ends_with_it(tmp_path: Path, owner: str) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", DIES + owner, str(tmp_path / "private")],
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )

    def is_left(process: psutil.Process) -> bool:
        with suppress(psutil.AccessDenied):  # it is another user's
            return str(tmp_path) in process.environ().values()
        return False

    assert started.wait(PATIENCE_S) == -signal.SIGKILL
    until(
        lambda: not any(left for _, left in read_each(psutil.process_iter(), is_left)),
        "every process has ended",
    )
    assert not list(tmp_path.iterdir())
