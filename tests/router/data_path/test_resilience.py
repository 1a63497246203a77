"""Retries and the breaker under faults: the cost of a bad replica, and for which requests."""

import asyncio
import contextlib
import socket

import pytest

from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.client import connect
from pando_router.core import breaker, retry_budget
from tests.router.admission.gate import Gate, ask, no_lease_is_left
from tests.router.world import Replica, RouterClient, completion, fleet, serving, status, until


async def retries(router: RouterClient, reason: str) -> float:
    sample = f'pando_router_retries_total{{pool="default",reason="{reason}"}}'
    return await router.metric(sample)


async def state_of(router: RouterClient, replica: str) -> str:
    pools = (await router.get("/fleet")).json["pools"].values()
    (found,) = (r["breaker"] for replicas in pools for r in replicas if r["replica"] == replica)
    return str(found)


async def chunks_believed(url: str, replica: Replica) -> int:
    """Chunks of the replica in the shared tree."""
    redis = connect(url)
    try:
        return await PrefixTree(redis, "default").size(replica.name, replica.heart.incarnation)
    finally:
        await redis.aclose()


async def test_a_dead_replica_with_a_fresh_heartbeat_costs_few_requests_one_retry_each(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_PAUSE_S", 60.0)  # no probe, even on a slow machine
    monkeypatch.setattr(breaker, "LONGEST_PAUSE_S", 60.0)
    async with fleet(valkey_url, "a", "b") as (router, [a, _]):
        await a.refuse()
        for number in range(60):
            answer = await router.post("/v1/completions", completion(f"{number} " * 100))
            assert (answer.status, answer.replica) == (200, "b")
        assert await retries(router, "connection") == breaker.FAILURES
        assert await state_of(router, "a") == "open"
        sample = 'pando_router_replica_breaker{pool="default",replica="a"}'
        assert await router.metric(sample) == 2
        await no_lease_is_left(valkey_url)


async def test_one_probe_at_a_time_finds_out_whether_a_replica_is_well(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_PAUSE_S", 0.5)
    async with fleet(valkey_url, "a", "b") as (router, [a, _]):
        a.answer = status(503)

        async def opened() -> bool:
            await router.post("/v1/completions", completion())
            return await state_of(router, "a") == "open"

        await until(opened, "the breaker being open")
        a.answer = gate = Gate()
        monkeypatch.setattr(breaker, "FIRST_PAUSE_S", 60.0)  # the probe takes longer than a pause

        async def half_open() -> bool:
            return await state_of(router, "a") == "probing"

        await until(half_open, "the breaker being half open")
        names = [f"{number} " * 100 for number in range(24)]
        tasks = [ask(router, name) for name in names]
        await until(lambda: sum(task.done() for task in tasks) == 23, "all others at b")
        assert len(gate.inside) == 1
        gate.let(*names)
        assert {(await task).status for task in tasks} == {200}
        assert await state_of(router, "a") == "closed"


async def test_a_busy_replicas_429_is_tried_where_there_is_room(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, _]):
        a.answer = status(429, **{"retry-after": "7"})
        for number in range(8):
            answer = await router.post("/v1/completions", completion(f"{number} " * 1000))
            assert (answer.status, answer.replica) == (200, "b")
        assert await retries(router, "429") >= 1
        assert await state_of(router, "a") == "closed"  # it is well, only busy
        await no_lease_is_left(valkey_url)
        # It computed nothing, so the refused prompt does not count as cached there.
        assert await chunks_believed(valkey_url, a) == 0


async def test_429_is_passed_on_where_the_others_are_full(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", max_replica_requests=1) as (router, [a, b]):
        a.answer = status(429, **{"retry-after": "7"})
        b.answer = gate = Gate()
        held = ask(router, "held " * 100)
        await until(lambda: gate.inside, "b being full")
        a.received.clear()  # it may have been the first to be asked
        answer = await router.post("/v1/completions", completion("other " * 100))
        assert (answer.status, answer.replica) == (429, "a")
        assert answer.headers["retry-after"] == "7"
        assert len(a.received) == 1  # and it did not wait for room
        gate.let("held " * 100)
        assert (await held).status == 200
        await no_lease_is_left(valkey_url)


async def test_retries_stop_where_their_budget_is_spent(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_budget, "MIN_PER_S", 1)
    monkeypatch.setattr(retry_budget, "WINDOW_S", 1000)
    async with fleet(valkey_url, "a", "b", retry_share=0.0) as (router, [a, b]):
        monkeypatch.setattr(retry_budget, "MIN_PER_S", 0.005)  # 5 in all
        a.answer = b.answer = status(503)
        for number in range(12):
            answer = await router.post("/v1/completions", completion(f"{number}"))
            assert answer.status == 503
            assert answer.json["error"]["code"] == "replicas_failed"
        assert await retries(router, "503") == 5
        assert len(a.received) + len(b.received) == 12 + 5
        refused = 'pando_router_retries_refused_total{pool="default"}'
        assert await router.metric(refused) == 8  # the fifth one wanted a third try


async def test_tries_are_bounded_whatever_the_budget(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", "c", max_tries=2) as (router, [a, b, c]):
        a.answer = b.answer = c.answer = status(503)
        assert (await router.post("/v1/completions", completion())).status == 503
        assert sum(len(replica.received) for replica in (a, b, c)) == 2


async def test_a_replica_that_leaves_leaves_no_gauge_behind(valkey_url: str) -> None:
    async with Replica(valkey_url, "b"), serving(valkey_url) as router:
        async with Replica(valkey_url, "a") as a:
            await router.ready("a", "b")
            await a.refuse()
            for number in range(8):
                await router.post("/v1/completions", completion(f"{number} " * 100))
            a.pause()
            await a._registry.leave(a.pool, a.name, a.heart.incarnation)

            async def gone() -> bool:
                metrics = (await router.get("/metrics")).body
                return b'replica_breaker{pool="default",replica="a"}' not in metrics

            await until(gone, "the gauge of the replica that left being gone")
        sample = 'pando_router_replica_healthy{pool="default",replica="b"}'
        assert await router.metric(sample) == 1


async def test_the_leases_of_streams_end_with_their_replica(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", migrate="off") as (router, [a]):
        a.answer = gate = Gate()
        tasks = [ask(router, str(number)) for number in range(4)]
        await until(lambda: len(gate.inside) == 4, "four requests at the replica")
        await a.refuse()
        answers = await asyncio.gather(*tasks)
        assert {answer.status for answer in answers} == {503}
        await no_lease_is_left(valkey_url)


async def test_a_replica_that_cannot_be_connected_to_costs_the_connect_timeout(
    valkey_url: str,
) -> None:
    with socket.socket() as deaf, contextlib.ExitStack() as fillers:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):  # its backlog is full, so further ones get no answer at all
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        async with (
            Replica(valkey_url, "a") as a,
            serving(valkey_url, connect_timeout=0.2) as router,
        ):
            await a.say(url=f"http://127.0.0.1:{deaf.getsockname()[1]}")
            await router.ready("a")
            answer = await router.post("/v1/completions", completion())
            assert answer.status == 503
            assert answer.json["error"]["code"] == "replicas_failed"
