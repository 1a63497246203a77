"""Rate limits equal a token bucket in exact fractions, for any sequence of calls."""

import asyncio
from collections.abc import AsyncIterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_fleet.records.limits import Limits
from pando_fleet.records.rate_limits import Level, RateLimits
from pando_fleet.redis.client import connect
from pando_fleet.redis.wire import Wire
from tests.examples import examples
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import World

NOW = 1_800_000_000_000
MINUTE = 60_000
DOUBT = Fraction(1)  # ms; this close to the border either answer is right


class Bucket:
    """A bucket's level in exact fractions, filled up to the present at each call."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.content = Fraction(limit)
        self.at = NOW

    def fill(self, now: int) -> None:
        self.content += Fraction(self.limit * (now - self.at), MINUTE)
        self.content = min(self.content, Fraction(self.limit))
        self.at = now

    def missing_ms(self, wanted: int) -> Fraction:
        """Time until `wanted` tokens are available; negative if there are more."""
        return (wanted - self.content) * MINUTE / self.limit


def takes(max_tokens: int) -> st.SearchStrategy[tuple[str, int, int]]:
    return st.tuples(st.just("take"), st.integers(0, 20_000), st.integers(0, max_tokens))


def settles(most: int) -> st.SearchStrategy[tuple[str, int, int]]:
    return st.tuples(st.just("settle"), st.integers(0, 20_000), st.integers(-most, most))


@given(
    limits=st.tuples(st.sampled_from([0, 1, 7, 60, 5_000]), st.sampled_from([0, 1, 999, 100_000])),
    steps=st.lists(st.one_of(takes(3_000), takes(200_000), settles(3_000)), max_size=40),
)
@settings(max_examples=examples(60))
def test_any_sequence_of_calls_agrees_with_exact_buckets(
    valkey_server: RedisServer, limits: tuple[int, int], steps: list[tuple[str, int, int]]
) -> None:
    asyncio.run(compare(valkey_server.url, Limits(*limits), steps))


async def compare(url: str, limits: Limits, steps: list[tuple[str, int, int]]) -> None:
    redis = connect(url)
    await redis.flushall()
    now = NOW
    wire = Wire(redis)
    rates = RateLimits(wire, lambda: now)
    requests = Bucket(limits.requests) if limits.requests else None
    tokens = Bucket(limits.tokens) if limits.tokens else None
    for what, passes_ms, count in steps:
        now += passes_ms
        for bucket in filter(None, (requests, tokens)):
            bucket.fill(now)
        if what == "settle":
            await rates.settle("t", limits, count)
            if tokens:
                tokens.content = min(tokens.content - count, Fraction(tokens.limit))
            continue
        wanted = [(requests, 1)] if requests else []
        wanted += [(tokens, min(count, limits.tokens))] if tokens else []
        waits = [bucket.missing_ms(number) for bucket, number in wanted]
        missing = max(waits, default=Fraction(-1))
        taken = await rates.take("t", limits, count)
        if abs(missing) > DOUBT:
            assert (taken.wait_ms > 0) == (missing > 0)
        if taken.wait_ms:
            assert abs(taken.wait_ms - missing) <= 1 + DOUBT
        else:
            for bucket, number in wanted:
                bucket.content -= number
        if requests:
            check(requests, taken.requests)
        if tokens:
            check(tokens, taken.tokens)
    await wire.aclose()
    await redis.aclose()


def check(bucket: Bucket, level: Level) -> None:
    tolerance = 1 + DOUBT * bucket.limit / MINUTE
    assert abs(level.left - max(bucket.content, Fraction(0))) <= tolerance
    full_ms = (bucket.limit - bucket.content) * MINUTE / bucket.limit
    assert abs(level.full_ms - full_ms) <= 1 + DOUBT


@pytest.fixture
async def wire(world: World) -> AsyncIterator[Wire]:
    wire = Wire(world.redis)
    yield wire
    await wire.aclose()


async def test_a_minutes_worth_may_come_at_once_and_then_one_at_a_time(
    world: World, wire: Wire
) -> None:
    rates, limits = RateLimits(wire, world.clock), Limits(requests=7)
    waits = [(await rates.take("t", limits, 0)).wait_ms for _ in range(8)]
    assert waits == [0] * 7 + [8572]  # a seventh of a minute, rounded up
    world.now_ms += 8572
    waits = [(await rates.take("t", limits, 0)).wait_ms for _ in range(2)]
    assert waits == [0, 8571]


async def test_a_wait_is_exact(world: World, wire: Wire) -> None:
    rates, limits = RateLimits(wire, world.clock), Limits(tokens=6_000)
    await rates.take("t", limits, 5_500)
    wait_ms = (await rates.take("t", limits, 1_000)).wait_ms
    assert wait_ms == 5_000
    world.now_ms += wait_ms - 1
    assert (await rates.take("t", limits, 1_000)).wait_ms == 1
    world.now_ms += 1
    assert (await rates.take("t", limits, 1_000)).wait_ms == 0


async def test_what_is_refused_takes_from_neither_bucket(world: World, wire: Wire) -> None:
    rates = RateLimits(wire, world.clock)
    await rates.take("t", Limits(requests=2, tokens=100), 100)
    refused = await rates.take("t", Limits(requests=2, tokens=100), 1)
    assert (refused.requests.wait_ms, refused.tokens.wait_ms) == (0, 600)
    assert (refused.requests.left, refused.tokens.left) == (1, 0)


async def test_two_routers_at_once_give_out_no_more_than_the_limit(redis_url: str) -> None:
    clients = [connect(redis_url) for _ in range(2)]
    wires = [Wire(client) for client in clients]
    rates = [RateLimits(wire, lambda: NOW) for wire in wires]
    limits = Limits(requests=50)
    taken = await asyncio.gather(*(rates[i % 2].take("t", limits, 0) for i in range(120)))
    assert sum(each.wait_ms == 0 for each in taken) == 50
    for each in (*wires, *clients):
        await each.aclose()


async def test_each_tenant_has_buckets_of_its_own(world: World, wire: Wire) -> None:
    rates, limits = RateLimits(wire, world.clock), Limits(requests=1)
    taken = [await rates.take(tenant, limits, 0) for tenant in ("a", "b", "a")]
    assert [each.wait_ms for each in taken] == [0, 0, 60_000]


async def test_a_bucket_takes_memory_only_until_it_is_full_again(world: World, wire: Wire) -> None:
    rates = RateLimits(wire)
    await rates.take("t", Limits(requests=60), 0)
    (key,) = await world.redis.keys("*")
    assert 0 < await world.redis.pttl(key) <= 1_000


async def test_tokens_that_were_not_needed_can_be_taken_again(world: World, wire: Wire) -> None:
    rates, limits = RateLimits(wire, world.clock), Limits(tokens=10)
    await rates.take("t", limits, 10)
    await rates.settle("t", limits, -4)
    assert (await rates.take("t", limits, 4)).wait_ms == 0
    assert (await rates.take("t", limits, 4)).wait_ms == 24_000


async def test_tokens_beyond_the_limit_are_owed(world: World, wire: Wire) -> None:
    rates, limits = RateLimits(wire, world.clock), Limits(tokens=10)
    assert (await rates.take("t", limits, 1_000)).wait_ms == 0
    await rates.settle("t", limits, 20)
    assert (await rates.take("t", limits, 1)).wait_ms == 60_000 * 2 + 6_000


async def test_a_limit_that_changes_counts_at_once(world: World, wire: Wire) -> None:
    rates = RateLimits(wire, world.clock)
    await rates.take("t", Limits(tokens=100), 50)
    assert (await rates.take("t", Limits(tokens=1_000), 500)).wait_ms == 0
    assert (await rates.take("t", Limits(tokens=1_000), 1)).wait_ms == 60
