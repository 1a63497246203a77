"""A part of the fleet with small real processes: restarting, stopping, killing, with children."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pando.up.part import Part, PartError
from pando.up.process import LONGEST_LINE, Command
from pando_fleet.guard import Guard
from tests.waiting import PATIENCE_S, is_running, until, until_async

WRITE_PID = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n');"
SLEEP = "import time; time.sleep(600)"
IGNORE_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
START_CHILD = (
    "import subprocess, sys;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "open(sys.argv[1], 'a').write(f'{child.pid}\\n');"
)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    directory = tmp_path / "private"
    directory.mkdir()
    guard = Guard(directory)
    yield guard
    guard.close()


class World:
    """One part that runs a Python script; the script may write process ids to a file."""

    def __init__(self, guard: Guard, tmp_path: Path, script: str) -> None:
        self.pid_file = tmp_path / "pids"
        self.lines: list[str] = []
        command = Command("part", (sys.executable, "-c", script, str(self.pid_file)), {})
        self.part = Part(command, guard, lambda name, line: self.lines.append(line))

    def pids(self) -> list[int]:
        return [int(p) for p in self.pid_file.read_text().split()] if self.pid_file.exists() else []

    async def pids_written(self, count: int) -> list[int]:
        await until_async(lambda: len(self.pids()) >= count, f"{count} pids")
        return self.pids()


async def test_a_part_that_was_ready_is_started_again_when_it_crashes(
    guard: Guard, tmp_path: Path
) -> None:
    world = World(guard, tmp_path, WRITE_PID + "sys.exit(3)")
    world.part.was_ready = True
    world.part.kept.start()
    first, second, *_ = await world.pids_written(2)
    assert first != second
    await world.part.kept.stop(grace_s=5)


async def test_a_part_that_ends_before_it_was_ready_says_why(guard: Guard, tmp_path: Path) -> None:
    world = World(guard, tmp_path, "print('no such model'); raise SystemExit(3)")
    with pytest.raises(
        PartError, match=r"part ended while starting \(exit code 3\): no such model"
    ):
        await world.part.kept.start()


async def test_a_signal_is_named_in_the_error(guard: Guard, tmp_path: Path) -> None:
    world = World(guard, tmp_path, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(PartError, match="killed by SIGKILL"):
        await world.part.kept.start()


async def test_the_event_of_a_json_log_line_is_the_reason_given(
    guard: Guard, tmp_path: Path
) -> None:
    world = World(guard, tmp_path, """print('{"event": "it broke"}'); raise SystemExit(1)""")
    with pytest.raises(PartError, match=r"exit code 1\): it broke$"):
        await world.part.kept.start()


async def test_stopping_ends_the_process_and_its_children(guard: Guard, tmp_path: Path) -> None:
    world = World(guard, tmp_path, START_CHILD + WRITE_PID + SLEEP)
    world.part.kept.start()
    pids = await world.pids_written(2)
    await asyncio.wait_for(world.part.kept.stop(grace_s=600), timeout=PATIENCE_S)
    until(lambda: not any(map(is_running, pids)), f"{pids} have ended")


async def test_a_process_that_does_not_end_is_killed_after_the_grace(
    guard: Guard, tmp_path: Path
) -> None:
    world = World(guard, tmp_path, IGNORE_SIGTERM + WRITE_PID + SLEEP)
    keeping = world.part.kept.start()
    (pid,) = await world.pids_written(1)
    await world.part.kept.stop(grace_s=0.2)
    assert keeping.done()
    assert not is_running(pid)


async def test_killing_leaves_no_grace(guard: Guard, tmp_path: Path) -> None:
    world = World(guard, tmp_path, IGNORE_SIGTERM + WRITE_PID + SLEEP)
    keeping = world.part.kept.start()
    (pid,) = await world.pids_written(1)
    stopping = asyncio.create_task(world.part.kept.stop(grace_s=600))
    world.part.kept.kill()
    await asyncio.wait_for(stopping, timeout=PATIENCE_S)
    assert keeping.done()
    assert not is_running(pid)


async def test_a_part_stopped_while_its_process_is_being_made_ends(
    guard: Guard, tmp_path: Path
) -> None:
    world = World(guard, tmp_path, WRITE_PID + SLEEP)
    keeping = world.part.kept.start()
    await asyncio.sleep(0)  # the keeping task has begun to start the process
    await world.part.kept.stop(grace_s=10)
    assert keeping.done()
    assert not any(map(is_running, world.pids()))


async def test_a_part_that_waits_to_be_started_again_stops_at_once(
    guard: Guard, tmp_path: Path
) -> None:
    world = World(guard, tmp_path, WRITE_PID + "sys.exit(3)")
    world.part.was_ready = True
    keeping = world.part.kept.start()
    await world.pids_written(3)  # from now on it waits for seconds
    await world.part.kept.stop(grace_s=0.1)
    assert keeping.done()


async def test_every_byte_of_output_is_relayed_however_long_the_line(
    guard: Guard, tmp_path: Path
) -> None:
    length = 5 * LONGEST_LINE + 17
    world = World(guard, tmp_path, f"print('x' * {length}); print('end', end='')")
    with pytest.raises(PartError):
        await world.part.kept.start()
    assert sum(line.count("x") for line in world.lines) == length
    assert max(map(len, world.lines)) < length
    assert world.lines[-1] == "end"


async def test_a_kill_while_the_process_is_being_made_does_not_wait_for_it(
    guard: Guard, tmp_path: Path
) -> None:
    world = World(guard, tmp_path, IGNORE_SIGTERM + SLEEP)
    keeping = world.part.kept.start()
    await asyncio.sleep(0)  # the task has begun to create it
    world.part.kept.kill()
    await world.part.kept.stop(grace_s=600)
    assert keeping.done()
