"""The most frequent complaints about other routers do not apply here.

docs/routing.md lists the complaints and their cures; those that are missing here are tested with
the part that cures them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp import web
from redis.asyncio import Redis

from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from tests.router.world import Replica, RouterClient, completion, serving, until

RATES: dict[str, Any] = {"prefill_tokens_per_s": 1_000.0, "capacity_tokens": 1_000_000}
HOT = 80  # requests at one replica: more than other routers' threshold of imbalance
NAMES = ("a", "b", "c", "d")


@asynccontextmanager
async def fleet(
    url: str, *, routers: int = 1, replicas: int = 4, **settings: Any
) -> AsyncIterator[tuple[list[RouterClient], list[Replica]]]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        members = [await enter(Replica(url, name, **RATES)) for name in NAMES[:replicas]]
        clients = [await enter(serving(url, **settings)) for _ in range(routers)]
        for client in clients:
            await client.ready(*NAMES[:replicas])
        yield clients, members


class Held:
    """Streams that begin and go on until `end` is set."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if not (await request.json()).get("stream"):
            return web.json_response({})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await self.end.wait()
        return response


@asynccontextmanager
async def streaming(router: RouterClient, replica: Replica, count: int) -> AsyncIterator[None]:
    """`count` streams have begun at the replica, the only ready one."""
    replica.answer = held = Held()
    async with AsyncExitStack() as stack:
        for _ in range(count):
            body = completion(text("hot"), stream=True)
            answer = await stack.enter_async_context(
                router.session.post(router.url + "/v1/completions", json=body)
            )
            await answer.content.readany()
        yield
        held.end.set()


def text(name: str, chunks: int = 16) -> str:
    return "".join(f"{name} {line:06d} ".ljust(32, ".") for line in range(8 * chunks))


async def ask(router: RouterClient, prompt: str) -> tuple[str, int]:
    """The request's replica, and how many of its tokens were expected to be cached there."""
    answer = await router.post("/v1/completions", completion(prompt))
    assert answer.status == 200, answer.body
    return answer.replica, int(answer.headers["x-pando-matched-tokens"])


async def leased(url: str, count: int) -> None:
    """Waits until `count` leases are left; each is released shortly after its answer."""
    async with Redis.from_url(url) as redis:

        async def so_many() -> bool:
            return int(await redis.zcard("pando:{default}:leases")) == count

        await until(so_many, f"{count} leases being left")


async def matched(url: str, routers: int) -> int:
    """Matched tokens of 12 conversations of 4 turns, each turn through another router."""
    async with fleet(url, routers=routers) as (clients, _):
        total = 0
        for turn in range(4):
            for number in range(12):
                router = clients[(turn + number) % routers]
                _, tokens = await ask(router, text(f"conversation {number}", 8 * (turn + 1)))
                total += tokens
                await leased(url, 0)
        return total


async def test_routers_do_not_diverge_however_many_there_are(valkey_url: str) -> None:
    one = await matched(valkey_url, 1)
    async with Redis.from_url(valkey_url) as redis:
        await redis.flushall()
    assert await matched(valkey_url, 4) == one
    assert one == 12 * (8 + 16 + 24) * 256 / 4, "everything that could be cached"


async def test_requests_of_all_routers_count_where_one_more_is_placed(valkey_url: str) -> None:
    async with fleet(valkey_url, routers=4) as (routers, replicas):
        a, *others = replicas
        for other in others:
            await other.say(state=ReplicaState.DRAINING)
        await routers[0].ready("b", "c", "d", state="draining")
        async with streaming(routers[0], a, 6):
            for other in others:
                await other.say(state=ReplicaState.READY)
            placed = Counter[str]()
            for number in range(12):  # through routers that have none in flight
                router = routers[1 + number % 3]
                await router.ready(*NAMES)
                placed[(await ask(router, f"short {number}"))[0]] += 1
                await leased(valkey_url, 6)
            assert placed["a"] == 0, placed


async def test_a_replica_never_has_more_requests_than_its_bound_from_all_routers_together(
    valkey_url: str,
) -> None:
    running = most = 0

    async def work(request: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return web.json_response({})

    async with fleet(valkey_url, routers=4, replicas=1, max_replica_requests=4) as (routers, [a]):
        a.answer = work
        await asyncio.gather(*(ask(routers[n % 4], f"{n}") for n in range(32)))
    assert most == 4


async def test_one_hot_replica_leaves_the_others_their_conversations(valkey_url: str) -> None:
    async with fleet(valkey_url) as ([router], replicas):
        a, *others = replicas
        await a.say(state=ReplicaState.DRAINING)
        await router.ready("a", state="draining")
        holders: dict[int, str] = {}
        while set(holders.values()) != {"b", "c", "d"}:  # equals share by chance
            number = len(holders)
            holders[number], _ = await ask(router, text(f"chat {number}"))
            await leased(valkey_url, 0)

        for other in others:
            await other.say(state=ReplicaState.DRAINING)
        await a.say(state=ReplicaState.READY)
        await router.ready("a")
        await router.ready("b", "c", "d", state="draining")
        async with streaming(router, a, HOT):
            for other in others:
                await other.say(state=ReplicaState.READY)
            await router.ready(*NAMES)
            for number, holder in holders.items():
                where, tokens = await ask(router, text(f"chat {number}", 20))
                assert (where, tokens) == (holder, 16 * 256 // 4)
                await leased(valkey_url, HOT)


async def test_prompts_that_nobody_has_are_spread_over_all_replicas(valkey_url: str) -> None:
    async with fleet(valkey_url) as ([router], _):
        placed = Counter[str]()
        for number in range(80):
            placed[(await ask(router, text(f"new {number}", 2)))[0]] += 1
            await leased(valkey_url, 0)
        assert set(placed) == set(NAMES)
        assert max(placed.values()) < 40, placed


async def test_a_tree_holds_no_more_than_its_replica_whatever_is_asked(valkey_url: str) -> None:
    async with fleet(valkey_url, replicas=1) as ([router], [a]):
        await a.say(capacity_tokens=40 * 64)  # 40 chunks of 256 bytes, at 4 bytes per token
        for number in range(60):
            await ask(router, text(f"prompt {number}", 4))
        redis = connect(valkey_url)
        tree = PrefixTree(redis, a.pool)

        async def size() -> int:
            return int(await tree.size("a", a.heart.incarnation))

        async def bounded() -> bool:
            return 0 < await size() <= 40

        await until(bounded, "the tree being within what the replica holds")
        await redis.aclose()
