"""The Valkey of a simulation, in which only virtual time passes."""

from pando_fleet.wire.call import pack
from pando_sim.fleet.line import BlockingLine
from pando_sim.fleet.server import client_of, valkey

LONG_AGO_MS = 1


async def test_nothing_expires_by_the_time_that_a_run_takes() -> None:
    answers: list[object] = []
    with valkey() as socket:
        line, client = BlockingLine(socket), client_of(socket)
        await client.set("a", "1", pxat=LONG_AGO_MS)
        line.send("b", pack("SET", "b", "2", "PXAT", LONG_AGO_MS), answers.append)
        for key in ("a", "b"):
            line.send(key, pack("GET", key), answers.append)
        line.flush()
        assert await client.mget("a", "b") == [b"1", b"2"]
        await client.aclose()
        line.close()
    assert answers[1:] == [b"1", b"2"]
