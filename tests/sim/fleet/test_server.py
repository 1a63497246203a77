"""A simulation's Valkey, which sees only virtual time."""

import subprocess
import sys
from pathlib import Path

import psutil

from pando_fleet.redis.wire.call import pack
from pando_sim.fleet.redis.line import BlockingLine
from pando_sim.fleet.redis.server import BlockingRedis, valkey
from tests.waiting import until

LONG_AGO_MS = 1


async def test_nothing_expires_by_the_time_that_a_run_takes() -> None:
    answers: list[object] = []
    with valkey() as socket:
        line, client = BlockingLine(socket), BlockingRedis(socket)
        await client.set("a", "1", pxat=LONG_AGO_MS)
        line.send("b", pack("SET", "b", "2", "PXAT", LONG_AGO_MS), answers.append)
        for key in ("a", "b"):
            line.send(key, pack("GET", key), answers.append)
        line.flush()
        assert await client.mget("a", "b") == [b"1", b"2"]
        await client.aclose()
        line.close()
    assert answers[1:] == [b"1", b"2"]


HOLDS_ONE = """
import sys
from pando_sim.fleet.redis.server import valkey
with valkey() as socket:
    print(socket, flush=True)
    sys.stdin.read()
"""


def test_a_simulation_that_is_killed_leaves_no_server_and_no_folder() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as simulation:
        assert simulation.stdout is not None
        socket = Path(simulation.stdout.readline().strip())
        assert socket.is_socket()
        started = psutil.Process(simulation.pid).children(recursive=True)
        assert any("valkey" in child.name() for child in started)
        simulation.kill()
    until(lambda: not any(child.is_running() for child in started), "all have ended", 30)
    assert not socket.parent.exists()
