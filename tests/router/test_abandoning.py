"""Requests under way at a replica that is out go on elsewhere, though its connections stand."""

import asyncio
from typing import Any

from pando_fleet.replica import ReplicaState
from tests.router.scripted_engine import TEXT, Engine
from tests.router.test_migration_proxy import CHAT, engine_says, nothing_leased, says, text_of, two
from tests.router.world import Replica, completion, never, until

STALLED = 'pando_router_abandoned_requests_total{pool="default",state="stalled"}'


def holds(engine: Engine, *replicas: Replica) -> asyncio.Event:
    """Whoever is asked first stands still amid its answer; set what is returned to let it go on."""
    hold, begun = asyncio.Event(), False

    async def answer(request: Any) -> Any:
        nonlocal begun
        is_first, begun = not begun, True
        return await says(engine, cut=700 if is_first else None, hold=hold if is_first else None)(
            request
        )

    for replica in replicas:
        replica.answer = answer
    return hold


async def test_a_stream_leaves_a_replica_that_stalls(valkey_url: str) -> None:
    assert len(engine_says()) > 700
    async with two(valkey_url) as (a, b, router):
        await router.ready("a", "b")
        holds(Engine(CHAT), a, b)
        stream = asyncio.ensure_future(text_of(router))
        await until(lambda: a.received or b.received, "one has the request")
        first, other = (a, b) if a.received else (b, a)
        await first.say(state=ReplicaState.STALLED)
        assert (await stream)[0] == TEXT
        assert len(first.received) == len(other.received) == 1
        await until(lambda: first.cancelled == 1, "the stalled replica is told that nobody waits")
        assert await router.metric(STALLED) == 1
        await until(lambda: nothing_leased(valkey_url), "leases are gone")


async def test_a_request_without_an_answer_yet_is_asked_of_another_replica(valkey_url: str) -> None:
    """Also on a connection that was used before: it is not taken for one that had been closed."""
    async with two(valkey_url) as (a, b, router):
        await router.ready("a", "b")
        for prompt in ("one", "two", "three", "four"):
            await router.post("/v1/completions", completion(prompt))
        a.received.clear()
        b.received.clear()
        a.answer = b.answer = never
        asked = asyncio.ensure_future(router.post("/v1/completions", completion("five")))
        await until(lambda: a.received or b.received, "one has the request")
        first, other = (a, b) if a.received else (b, a)
        other.answer = other.say_name
        await first.say(state=ReplicaState.STALLED)
        assert (await asked).replica == other.name
        assert len(first.received) == 1


async def test_nothing_is_placed_at_a_stalled_replica_until_it_is_ready_again(
    valkey_url: str,
) -> None:
    async with two(valkey_url) as (a, b, router):
        await a.say(state=ReplicaState.STALLED)
        await router.ready("a", state="stalled")
        for number in range(8):
            answer = await router.post("/v1/completions", completion(f"{number} " * 99))
            assert answer.replica == "b"
        await a.say(state=ReplicaState.READY)
        await b.say(state=ReplicaState.STALLED)
        await router.ready("a")
        await router.ready("b", state="stalled")
        assert (await router.post("/v1/completions", completion("9 " * 99))).replica == "a"


async def test_requests_wait_where_all_are_stalled(valkey_url: str) -> None:
    """One is back within a minute, by itself or by its watchdog."""
    async with two(valkey_url) as (a, b, router):
        for replica in (a, b):
            await replica.say(state=ReplicaState.STALLED)
            await router.ready(replica.name, state="stalled")
        waiting = asyncio.ensure_future(router.post("/v1/completions", completion()))
        queued = 'pando_router_queue_requests{pool="default"}'

        async def waits() -> bool:
            return await router.metric(queued) == 1

        await until(waits, "the request waits")
        await b.say(state=ReplicaState.READY)
        assert (await waiting).replica == "b"
