"""The fleet ends even if `pando up` is killed and cannot clean up."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import is_running, until

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
