"""A simulation's Valkey, which sees only virtual time."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pando_fleet.redis.client import FleetError, FleetUnavailable
from pando_fleet.redis.wire.call import pack
from pando_sim.fleet.redis.client import LineRedis
from pando_sim.fleet.redis.line import BlockingLine
from pando_sim.fleet.redis.server import valkey
from tests.waiting import until

LONG_AGO_MS = 1


async def test_nothing_expires_by_the_time_that_a_run_takes() -> None:
    answers: list[object] = []
    with valkey() as socket:
        line = BlockingLine(socket)
        client = LineRedis(line)
        await client.set("a", "1", pxat=LONG_AGO_MS)
        line.send("b", pack("SET", "b", "2", "PXAT", LONG_AGO_MS), answers.append)
        for key in ("a", "b"):
            line.send(key, pack("GET", key), answers.append)
        line.flush()
        assert await client.mget("a", "b") == [b"1", b"2"]
        await client.aclose()
        line.close()
    assert answers[1:] == [b"1", b"2"]


def test_reads_that_wait_together_are_answered_in_their_order_or_all_fail() -> None:
    with valkey() as socket:
        line = BlockingLine(socket)
        client = LineRedis(line)
        echo = client.register_script("return {KEYS[1], ARGV[1]}")
        works = (client.set("a", "1"), echo(keys=["k"], args=[2]), client.get("a"))
        assert line.together(*works) == [b"OK", [b"k", b"2"], b"1"]
        with pytest.raises(FleetError, match="wrong kind of value"):
            line.together(client.get("a"), client.hlen("a"))
        assert line.together(client.get("a")) == [b"1"], "its answers are still in order"
        line.is_away = True
        with pytest.raises(FleetUnavailable):
            line.together(client.get("a"))
        line.close()


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
