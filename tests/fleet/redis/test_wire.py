"""The hot path's connection with real servers, in both kinds of event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from pando_fleet.redis.client import FleetError, FleetUnavailable, connect
from pando_fleet.redis.layout.calls import Announce
from pando_fleet.redis.wire import Wire, WireScript
from pando_fleet.redis.wire import wire as wire_module
from pando_fleet.registry.registry import Registry
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.waiting import PATIENCE_S

StartValkey = Callable[..., RedisServer]
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine to its end in a loop of this kind."""
    return request.param  # type: ignore[no-any-return]


@asynccontextmanager
async def _wire(url: str) -> AsyncIterator[Wire]:
    redis = connect(url)
    wire = Wire(redis)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield wire
    finally:
        await wire.aclose()
        await redis.aclose()


async def _echo(wire: Wire, number: int) -> int:
    return int(await wire.call("k", "ECHO", number))


def test_each_caller_gets_its_own_reply_while_others_give_up(run: Run, valkey_url: str) -> None:
    async def story() -> None:
        async with _wire(valkey_url) as wire:
            for turn in range(20):
                tasks = [asyncio.create_task(_echo(wire, turn * 100 + i)) for i in range(100)]
                await asyncio.sleep(0)  # sent, or waiting for the first connection
                for task in tasks[turn::3]:
                    task.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
                for number, reply in enumerate(done, turn * 100):
                    assert reply == number or isinstance(reply, asyncio.CancelledError)
                assert sum(isinstance(reply, int) for reply in done) >= 66

    run(story())


def test_calls_of_one_turn_of_the_loop_reach_the_server_in_one_read(
    run: Run, start_valkey: StartValkey
) -> None:
    server = start_valkey()

    async def story() -> None:
        async with _wire(server.url) as wire:
            await _echo(wire, 0)
            with server.admin() as admin:
                before = admin.info("stats")["total_reads_processed"]
                await asyncio.gather(*(_echo(wire, i) for i in range(200)))
                # The admin's own INFO is also a read.
                assert admin.info("stats")["total_reads_processed"] - before <= 3

    run(story())


def test_more_calls_than_the_bound_are_refused_and_the_others_served(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "MAX_CALLS", 10)

    async def story() -> None:
        async with _wire(valkey_url) as wire:
            done = await asyncio.gather(
                *(_echo(wire, i) for i in range(15)), return_exceptions=True
            )
            assert done[:10] == list(range(10))
            assert [type(error) for error in done[10:]] == [FleetError] * 5  # not FleetUnavailable
            assert await _echo(wire, 7) == 7

    asyncio.run(story())


def test_a_server_that_stands_still_is_given_up_after_a_second_and_used_again_after(
    run: Run, start_valkey: StartValkey
) -> None:
    server = start_valkey()

    async def story() -> None:
        async with _wire(server.url) as wire:
            await _echo(wire, 1)
            server.freeze()
            start = time.monotonic()
            done = await asyncio.gather(
                *(_echo(wire, i) for i in range(60)), return_exceptions=True
            )
            assert all(isinstance(error, FleetUnavailable) for error in done)
            assert 0.9 < time.monotonic() - start < 30  # one second for all, not 60
            server.thaw()
            assert await _echo(wire, 2) == 2

    run(story())


def test_calls_under_way_when_the_server_restarts_are_repeated(
    run: Run, start_valkey: StartValkey
) -> None:
    server = start_valkey()

    async def story() -> None:
        async with _wire(server.url) as wire:
            await _echo(wire, 1)
            server.freeze()
            calls = [asyncio.create_task(_echo(wire, i)) for i in range(50)]
            await asyncio.sleep(0.01)
            server.stop()
            server.start()
            assert await asyncio.gather(*calls) == list(range(50))

    run(story())


def test_a_server_that_is_gone_is_unavailable_until_it_is_back(
    run: Run, start_valkey: StartValkey
) -> None:
    server = start_valkey()

    async def story() -> None:
        async with _wire(server.url) as wire:
            await _echo(wire, 1)
            server.stop()
            for _ in range(3):
                with pytest.raises(FleetUnavailable):
                    await _echo(wire, 1)
            server.start()
            assert await _echo(wire, 2) == 2

    run(story())


def test_a_server_that_never_answers_auth_is_unavailable_and_nothing_else_goes_wrong(
    run: Run,
) -> None:
    mistakes: list[dict[str, Any]] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: mistakes.append(what))
        silent = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with silent, _wire(f"redis://:secret@127.0.0.1:{port}/3") as wire:
            for _ in range(2):
                with pytest.raises(FleetUnavailable, match="did not answer"):
                    await _echo(wire, 1)

    run(story())
    assert not mistakes


async def test_a_script_that_the_server_forgot_is_loaded_again(redis_url: str) -> None:
    async with _wire(redis_url) as wire:
        announce = WireScript(wire, Announce)

        async def one(number: int) -> None:
            await announce(Announce(pools="z", now=5, pool=f"p{number}"))

        for number in range(3):
            await wire.call("k", "SCRIPT", "FLUSH")
            await asyncio.gather(*(one(9 * number + i) for i in range(9)))
        assert await wire.call("z", "ZCARD", "z") == 27


async def test_a_commands_mistake_is_an_error_and_the_next_reply_is_right(redis_url: str) -> None:
    async with _wire(redis_url) as wire:
        wrong = wire.call("k", "NOSUCHCOMMAND")
        done = await asyncio.gather(_echo(wire, 1), wrong, _echo(wire, 2), return_exceptions=True)
        assert (done[0], done[2]) == (1, 2)
        assert isinstance(done[1], FleetError)
        assert not isinstance(done[1], FleetUnavailable)


async def test_after_a_failover_the_new_master_is_found_through_the_sentinel(
    start_valkey: StartValkey,
) -> None:
    old, new = start_valkey(port=free_port()), start_valkey(port=free_port())
    sentinel = start_valkey(
        "--sentinel", port=free_port(), config=f"sentinel monitor prod 127.0.0.1 {old.port} 1"
    )
    async with _wire(f"redis+sentinel://127.0.0.1:{sentinel.port}/prod") as wire:
        assert await wire.call("k", "SET", "k", "old") == b"OK"
        watch: Any = sentinel.admin()
        with old.admin() as was, watch:
            was.replicaof("127.0.0.1", str(new.port))
            watch.execute_command("SENTINEL", "REMOVE", "prod")
            watch.execute_command("SENTINEL", "MONITOR", "prod", "127.0.0.1", new.port, 1)
        assert await wire.call("k", "SET", "k", "new") == b"OK"
    with new.admin() as is_master:
        assert is_master.get("k") == b"new"


@asynccontextmanager
async def _cluster_of_two(start_valkey: StartValkey) -> AsyncIterator[tuple[Any, Any]]:
    """Admin clients of two nodes; the first has all slots."""
    nodes = [
        start_valkey("--cluster-enabled", "yes", port=free_port(), config=f"cluster-port {bus}")
        for bus in (free_port(), free_port())
    ]
    first: Any = nodes[0].admin()
    second: Any = nodes[1].admin()
    with first, second:
        first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        bus = second.execute_command("CONFIG", "GET", "cluster-port")[b"cluster-port"]
        first.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, int(bus))

        def know_each_other() -> bool:
            return all(
                b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO")
                and b"cluster_known_nodes:2" in node.execute_command("CLUSTER", "INFO")
                for node in (first, second)
            )

        await _until(know_each_other)
        yield first, second


def _port(node: Any) -> int:
    return int(node.execute_command("CONFIG", "GET", "port")[b"port"])


async def test_a_slot_that_moved_to_another_node_is_followed(start_valkey: StartValkey) -> None:
    async with _cluster_of_two(start_valkey) as (first, second):
        slot = int(first.execute_command("CLUSTER", "KEYSLOT", "{p}k"))
        async with _wire(f"redis+cluster://127.0.0.1:{_port(first)}") as wire:
            await wire.call("{p}k", "SET", "{p}k", "a")
            await wire.call("{p}k", "DEL", "{p}k")
            for node in (second, first):
                name = str(second.execute_command("CLUSTER", "MYID"), "ascii")
                node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", name)
            await _until(lambda: _owner(first, slot) == _port(second))
            assert await wire.call("{p}k", "SET", "{p}k", "b") == b"OK"
        assert second.execute_command("GET", "{p}k") == b"b"


async def test_a_plain_url_of_a_cluster_is_an_error_that_names_the_right_form(
    start_valkey: StartValkey,
) -> None:
    async with _cluster_of_two(start_valkey) as (_, second):
        url = f"redis://127.0.0.1:{_port(second)}"
        redis = connect(url)
        registry = Registry(redis)
        for ask in (registry.pools(), registry.replicas("p")):
            with pytest.raises(FleetUnavailable, match=r"must be redis\+cluster://host:port"):
                await ask
        await redis.aclose()
        async with _wire(url) as wire:
            with pytest.raises(FleetUnavailable, match=r"must be redis\+cluster://host:port"):
                await wire.call("k", "GET", "k")


def _owner(node: Any, slot: int) -> int | None:
    for row in node.execute_command("CLUSTER", "SLOTS"):
        if int(row[0]) <= slot <= int(row[1]):
            return int(row[2][1])
    return None


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)
