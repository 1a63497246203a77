"""The routers' queues as the operator sees them: one sum, without dead routers."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.records.queues import Queued, Queues
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.constants import SILENCE_MS
from tests.examples import examples
from tests.fleet.world import POOL, World

_WORD = st.tuples(
    st.sampled_from(("r1", "r2", "r3")),
    st.integers(0, 5),  # requests
    st.integers(0, 9_000),  # ms waited
    st.integers(0, 1_000_000),  # tokens
    st.integers(0, 4_000),  # ms until the next report
)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(words=st.lists(_WORD, max_size=12))
async def test_the_sum_is_that_of_the_last_words_of_routers_that_still_speak(
    redis_url: str, words: list[tuple[str, int, int, int, int]]
) -> None:
    async with World.open(redis_url) as world:
        queues = Queues(world.redis, world.clock)
        last: dict[str, tuple[int, int, int, int]] = {}  # reported at, requests, since, tokens
        for router, requests, waited_ms, tokens, pause_ms in words:
            await queues.report(POOL, router, requests, waited_ms, tokens)
            last[router] = (world.now_ms, requests, world.now_ms - waited_ms, tokens)
            world.now_ms += pause_ms
            speak = [
                (requests, since, tokens)
                for told, requests, since, tokens in last.values()
                if requests and told >= world.now_ms - SILENCE_MS
            ]
            assert await queues.read(POOL) == Queued(
                requests=sum(requests for requests, _, _ in speak),
                waited_ms=world.now_ms
                - min((since for _, since, _ in speak), default=world.now_ms),
                tokens=sum(tokens for _, _, tokens in speak),
            )


async def test_what_dead_routers_said_leaves_redis(world: World) -> None:
    queues = Queues(world.redis, world.clock)
    for dead in ("r1", "r2", "r3"):
        await queues.report(POOL, dead, 3, 0, 300)
    world.now_ms += SILENCE_MS
    await queues.report(POOL, "alive", 1, 0, 100)
    key = f"pando:{{{POOL}}}:queues"
    assert sorted(await world.redis.hkeys(key)) == [b"alive", b"r1", b"r2", b"r3"]
    world.now_ms += 1
    await queues.report(POOL, "alive", 1, 0, 100)
    assert await world.redis.hkeys(key) == [b"alive"]
    assert await world.redis.pttl(key) == -1  # keys with a TTL may be evicted


async def test_a_queue_without_a_router_or_with_negative_numbers_is_refused(world: World) -> None:
    for router, requests, waited_ms, tokens in (
        ("", 1, 0, 1),
        ("r", -1, 0, 1),
        ("r", 1, -1, 1),
        ("r", 1, 0, -1),
    ):
        with pytest.raises(FleetError):
            await Queues(world.redis).report(POOL, router, requests, waited_ms, tokens)


async def test_what_a_router_of_the_release_before_said_gets_no_end(world: World) -> None:
    queues = Queues(world.redis, world.clock)
    key = PoolKeys(POOL).queues
    await queues.report(POOL, "old", 1, 0, 10)
    await world.redis.pexpire(key, 60_000)
    await queues.report(POOL, "new", 1, 0, 10)
    assert await world.redis.pttl(key) == -1
