"""Admission as clients see it: places are bounded; other requests wait in turn or are refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from pando_router.admission import reports
from pando_router.core import bounded_queue
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.admission.gate import Gate, ask, error, no_lease_is_left, queued
from tests.router.world import Replica, RouterClient, completion, fleet, serving, until


@asynccontextmanager
async def two_routers(valkey_url: str) -> AsyncIterator[tuple[Replica, RouterClient, RouterClient]]:
    """Of a replica that takes one request at a time."""
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as one,
        serving(valkey_url, max_replica_requests=1) as two,
    ):
        await one.ready("a")
        await two.ready("a")
        yield a, one, two


async def test_a_replica_never_has_more_than_it_may_and_all_are_served(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=2) as (router, [a]):
        a.answer = gate = Gate()
        tasks = [ask(router, str(number)) for number in range(8)]
        await until(lambda: len(gate.inside) == 2, "two requests at the replica")
        await queued(router, 6)
        assert await router.metric('pando_router_queue_requests{pool="default"}') == 6
        gate.let(*map(str, range(8)))
        assert {(await task).status for task in tasks} == {200}
        assert gate.most == 2
        ends = 'pando_router_queue_ends_total{end="placed",pool="default"}'
        assert await router.metric(ends) == 6
        await no_lease_is_left(valkey_url)


async def test_the_bound_is_that_of_all_routers_together(valkey_url: str) -> None:
    async with two_routers(valkey_url) as (a, one, two):
        a.answer = gate = Gate()
        first = ask(one, "first")
        await until(lambda: gate.inside, "the first request at the replica")
        second = ask(two, "second")
        await queued(two, 1)
        gate.let("first", "second")  # the second router is not notified of the first one's end
        assert (await first).status == (await second).status == 200
        assert gate.most == 1


async def test_newcomers_do_not_overtake_waiting_requests(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if another router has freed a place that the queue has not noticed yet."""
    monkeypatch.setattr(bounded_queue, "PACE_S", 3600.0)
    async with two_routers(valkey_url) as (a, one, two):
        a.answer = held = Gate()
        first = ask(two, "held")
        await until(lambda: held.inside, "the first at the replica")
        early = ask(one, "early")
        await queued(one, 1)
        held.let("held")
        assert (await first).status == 200
        await no_lease_is_left(valkey_url)
        late = ask(one, "late")
        await queued(one, 2)
        assert held.order == ["held"]
        for task in (early, late):
            task.cancel()
        await queued(one, 0)


@pytest.mark.parametrize(
    ("allowed", "expected"), [(False, ["body", "none", "header"]), (True, ["header", "body"])]
)
async def test_smaller_priority_goes_first_by_body_and_where_allowed_by_header(
    valkey_url: str, allowed: bool, expected: list[str]
) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=1, allow_priority_header=allowed) as (
        router,
        [a],
    ):
        a.answer = gate = Gate()
        tasks = [ask(router, "first")]
        await until(lambda: len(a.received) == 1, "the first at the replica")
        for number, (name, body, headers) in enumerate(
            (
                ("none", {}, {}),
                ("header", {}, {"x-priority": "-9"}),
                ("body", {"priority": -5}, {}),
            ),
            1,
        ):
            tasks.append(ask(router, name, body, **headers))
            await queued(router, number)
        gate.let("first", "none", "header", "body")
        await asyncio.gather(*tasks)
        assert gate.order[1 : 1 + len(expected)] == expected
        # A header that does not count here must not count at the replica either.
        passed = [each.headers["x-priority"] for each in a.received if "x-priority" in each.headers]
        assert passed == (["-9"] if allowed else [])


async def test_a_full_queue_answers_429_at_once_with_retry_after(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=1, queue_requests=1) as (router, [a]):
        a.answer = gate = Gate()
        tasks = [ask(router, "0")]
        await until(lambda: gate.inside, "the first at the replica")
        tasks.append(ask(router, "1"))
        await queued(router, 1)
        refused = await router.post("/v1/completions", completion("2"))
        assert error(refused) == (429, "queue_full")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        gate.let("0", "1")
        assert {(await task).status for task in tasks} == {200}


async def test_a_replica_that_joins_opens_no_second_queue(valkey_url: str) -> None:
    """In a pool of several models, as static upstreams are by default."""
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b", model="other"),
        serving(valkey_url, max_replica_requests=1, queue_requests=2) as router,
    ):
        await router.ready("a", "b")
        a.answer = gate = Gate()
        first = ask(router, "first")
        await until(lambda: gate.inside, "the first at the replica")
        waiting = []
        for length, prompt in enumerate(("second", "third"), 1):
            waiting.append(ask(router, prompt))
            await queued(router, length)
        joining = Replica(valkey_url, "c")
        joining.state = ReplicaState.STARTING
        async with joining:
            await router.ready("c", state="starting")
            refused = await router.post("/v1/completions", completion("newcomer"))
        assert error(refused) == (429, "queue_full")
        gate.let("first", "second", "third")
        assert {(await one).status for one in (first, *waiting)} == {200}
        assert gate.order == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("has", "asks", "path"),
    [
        ({"model": "other"}, {"model": "other"}, "/v1/completions"),
        ({"adapters": ("poet",)}, {"model": "poet"}, "/v1/completions"),
        ({"endpoints": ()}, {}, "/generate"),
    ],
    ids=["model", "adapter", "path"],
)
async def test_no_request_waits_behind_one_that_needs_another_replica(
    valkey_url: str, has: dict[str, Any], asks: dict[str, str], path: str
) -> None:
    async with (
        Replica(valkey_url, "a", endpoints=("/v1/completions",)) as a,
        Replica(valkey_url, "b", **has) as b,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = gate = Gate()
        # Requests that only b serves fill it, and more wait for it; a has places for all others.
        body = {"prompt": "held", "text": "held", "model": "m"} | asks
        held = asyncio.create_task(router.post(path, body))
        await until(lambda: b.received, "the first at the replica")
        waiting = asyncio.create_task(router.post(path, body))
        await queued(router, 1)
        gate.let("free")
        free = await router.post("/v1/completions", completion("free"))
        assert (free.status, free.replica) == (200, "a")
        gate.let("held")
        assert {(await one).status for one in (held, waiting)} == {200}


async def test_a_client_that_leaves_the_queue_frees_its_place_there(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=1, queue_requests=1) as (router, [a]):
        a.answer = gate = Gate()
        first = ask(router, "first")
        await until(lambda: gate.inside, "the first at the replica")
        gone = ask(router, "gone")
        await queued(router, 1)
        gone.cancel()
        await queued(router, 0)
        next_one = ask(router, "next")
        await queued(router, 1)
        gate.let("first", "next")
        assert (await first).status == (await next_one).status == 200
        assert gate.order == ["first", "next"]
        await no_lease_is_left(valkey_url)
        assert await router.metric("pando_router_requests_in_flight") == 0


async def test_without_redis_the_routers_own_count_is_the_bound(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a", max_replica_requests=1) as (router, [a]):
        server.stop()

        async def away() -> bool:
            return bool((await router.get("/fleet")).json["redis"] == "away")

        await until(away, "Redis being away")
        a.answer = gate = Gate()
        tasks = [ask(router, str(number)) for number in range(4)]
        await queued(router, 3)
        gate.let(*map(str, range(4)))
        assert {(await task).status for task in tasks} == {200}
        assert gate.most == 1


async def test_what_computes_nothing_does_not_wait(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", max_replica_requests=1) as (router, [a]):
        a.answer = gate = Gate()
        tasks = [ask(router, "0")]
        await until(lambda: gate.inside, "the first at the replica")
        tasks.append(ask(router, "1"))
        await queued(router, 1)
        a.answer = a.say_name
        answer = await router.post("/tokenize", {"model": "m", "prompt": "x"})
        assert answer.status == 200
        gate.let("0", "1")
        await asyncio.gather(*tasks)


async def test_the_end_of_an_own_request_wakes_the_queue(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_queue, "PACE_S", 3600.0)
    async with fleet(valkey_url, "a", max_replica_requests=1) as (router, [a]):
        a.answer = gate = Gate()
        tasks = [ask(router, str(number)) for number in range(6)]
        await queued(router, 5)
        gate.let(*map(str, range(6)))
        assert {(await task).status for task in tasks} == {200}


async def test_routers_leave_each_other_places(valkey_url: str, monkeypatch: Any) -> None:
    """One router has all places and a queue that would take every freed one."""
    monkeypatch.setattr(bounded_queue, "PACE_S", 0.2)
    async with two_routers(valkey_url) as (a, one, two):
        a.answer = gate = Gate()
        tasks = [ask(one, "first")]
        await until(lambda: gate.inside, "the first at the replica")
        names = [f"{router} {number}" for number in range(40) for router in ("one", "two")]
        tasks += [ask(one if name.startswith("one") else two, name) for name in names]
        await queued(one, 40)
        await queued(two, 40)
        redis = connect(valkey_url)

        async def told() -> bool:
            return (await Queues(redis).read("default")).requests == 80

        await until(told, "both lengths in Redis")
        waited_ms = (await Queues(redis).read("default")).waited_ms

        async def told_again() -> bool:
            now_ms = (await Queues(redis).read("default")).waited_ms
            return now_ms > waited_ms + 2000 * reports.EVERY_S

        await until(told_again, "both routers having read the other's length")
        gate.let("first", *names)
        assert {(await task).status for task in tasks} == {200}
        first_half = gate.order[1:41]
        assert min(sum(n.startswith(who) for n in first_half) for who in ("one", "two")) >= 2
        await redis.aclose()
