"""Admission as clients see it: places are bounded, the others wait their turn or are told when."""

import asyncio
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest
from aiohttp import web

from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from pando_router.admission import reports
from pando_router.core import bounded_queue
from tests.fleet.redis_server import RedisServer, free_port
from tests.router.world import Answer, Replica, RouterClient, completion, serving, until


class Gate:
    """A replica's answer that waits until the test lets it go; knows who is inside."""

    def __init__(self) -> None:
        self.inside: list[str] = []  # prompts, as they came
        self.order: list[str] = []
        self.most = 0
        self._open: dict[str, asyncio.Event] = {}

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        prompt = json.loads(await request.read())["prompt"]
        self.inside.append(prompt)
        self.order.append(prompt)
        self.most = max(self.most, len(self.inside))
        try:
            await self._open.setdefault(prompt, asyncio.Event()).wait()
            return web.json_response({"prompt": prompt})
        finally:
            self.inside.remove(prompt)

    def let(self, *prompts: str) -> None:
        for prompt in prompts:
            self._open.setdefault(prompt, asyncio.Event()).set()


def ask(router: RouterClient, prompt: str, body: Any = None, **headers: str) -> Any:
    request = router.post("/v1/completions", completion(prompt, **body or {}), **headers)
    return asyncio.create_task(request)


async def queued(router: RouterClient, count: int) -> None:
    async def seen() -> bool:
        lengths: dict[str, int] = (await router.get("/fleet")).json["queues"]
        return sum(lengths.values()) == count

    await until(seen, f"{count} requests in the queue")


async def no_lease_is_left(url: str) -> None:
    redis = connect(url)
    try:

        async def none_left() -> bool:
            return int(await redis.zcard("pando:{default}:leases")) == 0

        await until(none_left, "all leases released")
    finally:
        await redis.aclose()


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["code"]


async def test_a_replica_never_has_more_than_it_may_and_all_are_served(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=2) as router,
    ):
        await router.ready("a")
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
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as one,
        serving(valkey_url, max_replica_requests=1) as two,
    ):
        await one.ready("a")
        await two.ready("a")
        a.answer = gate = Gate()
        first = ask(one, "first")
        await until(lambda: gate.inside, "the first request at the replica")
        second = ask(two, "second")
        await queued(two, 1)
        gate.let("first", "second")  # the second router is not told of the first one's end
        assert (await first).status == (await second).status == 200
        assert gate.most == 1


async def test_newcomers_do_not_overtake_those_who_wait(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there is room, which the queue has not noticed: another router gave it back."""
    monkeypatch.setattr(bounded_queue, "PACE_S", 3600.0)
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as one,
        serving(valkey_url, max_replica_requests=1) as two,
    ):
        await one.ready("a")
        await two.ready("a")
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
async def test_higher_priority_goes_first_by_body_and_where_allowed_by_header(
    valkey_url: str, allowed: bool, expected: list[str]
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1, allow_priority_header=allowed) as router,
    ):
        await router.ready("a")
        a.answer = gate = Gate()
        tasks = [ask(router, "first")]
        await until(lambda: len(a.received) == 1, "the first at the replica")
        for number, (name, body, headers) in enumerate(
            (
                ("none", {}, {}),
                ("header", {}, {"x-priority": "9"}),
                ("body", {"priority": 5}, {}),
            ),
            1,
        ):
            tasks.append(ask(router, name, body, **headers))
            await queued(router, number)
        gate.let("first", "none", "header", "body")
        await asyncio.gather(*tasks)
        assert gate.order[1 : 1 + len(expected)] == expected


async def test_a_wait_that_is_too_long_ends_with_the_time_to_come_back(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1, queue_timeout=0.2) as router,
    ):
        await router.ready("a")
        a.answer = gate = Gate()
        first = ask(router, "first")
        await until(lambda: gate.inside, "the first at the replica")
        late = await router.post("/v1/completions", completion("late"))
        assert error(late) == (503, "queue_timeout")
        assert 1 <= int(late.headers["retry-after"]) <= 60
        for limit in ({"x-request-timeout": "0.05"}, {"x-request-timeout-ms": "50"}):
            dead = await router.post("/v1/completions", completion("dead"), **limit)
            assert error(dead) == (504, "deadline_exceeded")
        gate.let("first")
        assert (await first).status == 200
        assert gate.order == ["first"]


@pytest.mark.parametrize("limit", [{"x-request-timeout": "20"}, {"x-request-timeout-ms": "20000"}])
async def test_a_replica_is_told_what_the_queue_left_of_a_requests_time(
    valkey_url: str, limit: dict[str, str]
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a")
        a.answer = gate = Gate()
        first = ask(router, "first", **limit)
        await until(lambda: gate.inside, "the first at the replica")
        second = ask(router, "second", **limit)
        await queued(router, 1)
        since = perf_counter()
        await until(lambda: perf_counter() - since > 0.1, "some waiting")
        waited_s = perf_counter() - since
        gate.let("first", "second")
        assert {(await one).status for one in (first, second)} == {200}
        told = [one.headers for one in a.received]
        assert not any("x-request-timeout" in headers for headers in told)
        at_once_ms, later_ms = (int(headers["x-request-timeout-ms"]) for headers in told)
        assert 10_000 < at_once_ms <= 20_000
        assert 10_000 < later_ms <= 20_000 - 1000 * waited_s


@pytest.mark.parametrize("header", ["x-request-timeout", "x-request-timeout-ms"])
@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "1e400"])
async def test_a_time_that_is_none_is_refused_though_nobody_waits(
    valkey_url: str, header: str, value: str
) -> None:
    async with Replica(valkey_url, "a") as a, serving(valkey_url) as router:
        await router.ready("a")
        wrong = await router.post("/v1/completions", completion("x"), **{header: value})
        assert wrong.status == 400
        assert wrong.json["error"]["param"] == header
        assert not a.received


async def test_a_full_queue_answers_429_at_once_with_retry_after(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1, queue_requests=1) as router,
    ):
        await router.ready("a")
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
async def test_nobody_waits_behind_who_needs_another_replica(
    valkey_url: str, has: dict[str, Any], asks: dict[str, str], path: str
) -> None:
    async with (
        Replica(valkey_url, "a", endpoints=("/v1/completions",)) as a,
        Replica(valkey_url, "b", **has) as b,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = gate = Gate()
        # What only b serves fills it, and more waits for it; then a has a place for all others.
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
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1, queue_requests=1) as router,
    ):
        await router.ready("a")
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


@pytest.mark.parametrize("known_by", ["redis", "settings", "a starting replica"])
async def test_requests_wait_for_a_pool_that_wakes(valkey_url: str, known_by: str) -> None:
    redis = connect(valkey_url)
    settings: dict[str, Any] = (
        {"expected_pools": {"default": "m"}} if known_by == "settings" else {}
    )
    if known_by == "redis":
        await ExpectedPools(redis).put("default", ["m"])
    async with serving(valkey_url, **settings) as router:
        if known_by == "a starting replica":
            sleeper = Replica(valkey_url, "a")
            sleeper.state = ReplicaState.STARTING
            async with sleeper as a:
                await router.ready("a", state="starting")
                waiting = ask(router, "hello")
                await queued(router, 1)
                await a.say(state=ReplicaState.READY)
                assert (await waiting).replica == "a"
        else:

            async def ready() -> bool:
                return (await router.get("/readyz")).status == 200

            await until(ready, "the router taking requests for a pool that sleeps")
            waiting = ask(router, "hello")
            await queued(router, 1)
            async with Replica(valkey_url, "a"):
                assert (await waiting).replica == "a"
    await redis.aclose()


async def test_what_sleeps_too_long_and_what_does_not_exist_is_told_apart(valkey_url: str) -> None:
    settings: dict[str, Any] = {"expected_pools": {"default": "m"}, "queue_timeout": 0.1}
    async with serving(valkey_url, **settings) as router:
        answer = await router.post("/v1/completions", completion())
        assert error(answer) == (503, "queue_timeout")
        answer = await router.post("/v1/completions", {"model": "other", "prompt": "x"})
        assert error(answer) == (404, "model_not_found")
        models = (await router.get("/v1/models")).json["data"]
        assert [model["id"] for model in models] == ["m"]


async def test_without_redis_the_routers_own_count_is_the_bound(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey(port=free_port())
    async with (
        Replica(server.url, "a") as a,
        serving(server.url, max_replica_requests=1) as router,
    ):
        await router.ready("a")
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
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a")
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
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as router,
    ):
        await router.ready("a")
        a.answer = gate = Gate()
        tasks = [ask(router, str(number)) for number in range(6)]
        await queued(router, 5)
        gate.let(*map(str, range(6)))
        assert {(await task).status for task in tasks} == {200}


async def test_the_queues_length_is_in_redis_while_requests_wait(valkey_url: str) -> None:
    redis = connect(valkey_url)
    queues = Queues(redis)
    await ExpectedPools(redis).put("default", ["m"])
    async with serving(valkey_url) as one, serving(valkey_url) as two:
        tasks = []
        for router in (one, two):

            async def known(router: RouterClient = router) -> bool:
                return (await router.get("/readyz")).status == 200

            await until(known, "the sleeping pool being known")
            tasks += [ask(router, "0"), ask(router, "1")]

        async def told(count: int) -> bool:
            return (await queues.read("default")).requests == count

        await until(lambda: told(4), "both routers' queues in Redis")
        waiting = await queues.read("default")
        assert waiting.waited_ms > 0
        assert waiting.tokens == 4 * (1 + 256), "a byte of prompt, and the answer"
        async with Replica(valkey_url, "a"):
            assert {(await task).status for task in tasks} == {200}
            await until(lambda: told(0), "empty queues in Redis")
    await redis.aclose()


async def test_routers_leave_each_other_places(valkey_url: str, monkeypatch: Any) -> None:
    """One has all places and a queue that would take every one that is given back."""
    monkeypatch.setattr(bounded_queue, "PACE_S", 0.2)
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=1) as one,
        serving(valkey_url, max_replica_requests=1) as two,
    ):
        await one.ready("a")
        await two.ready("a")
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
