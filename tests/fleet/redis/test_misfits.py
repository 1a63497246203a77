"""Rows that do not fit their type are skipped, counted, and logged once per sender; others are
read."""

import json
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.records.decisions import PastDecision, PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.homes import Homes
from pando_fleet.records.limits import Limits
from pando_fleet.records.marks import Marks
from pando_fleet.records.queues import Queued, Queues
from pando_fleet.records.rate_limits import RateLimits
from pando_fleet.redis import misfits
from pando_fleet.redis.keys import DECISIONS, EXPECTED, POOLS
from pando_fleet.redis.layout.constants import MarkKind
from pando_fleet.registry.replica import ReplicaState
from pando_fleet.registry.upstreams import Sampled, UpstreamRecords
from tests.examples import examples
from tests.fleet.world import BEAT, POOL, World

MINUTE = 60_000
FIELDS = sorted(json.loads(msgspec.json.encode(BEAT)))
BEATS, MARKS = f"pando:{{{POOL}}}:beats", f"pando:{{{POOL}}}:marks"


@contextmanager
def skipped(kind: str, count: int) -> Iterator[None]:
    """Checks that `count` misfits of this kind are counted in the block."""
    before = misfits.counts().get(kind, 0)
    yield
    assert misfits.counts().get(kind, 0) - before == count


def beat_with(**values: Any) -> str:
    return json.dumps(json.loads(msgspec.json.encode(BEAT)) | values)


_WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.just(-1),
    st.just({}),
    st.just([None]),
    st.just("\0"),
    st.just(1e300),
)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(FIELDS), value=_WRONG)
async def test_whatever_a_heartbeat_says_the_other_replicas_are_seen(
    valkey_url: str, name: str, value: object
) -> None:
    async with World.open(valkey_url) as world:
        await world.beat("a", "b")
        await world.redis.hset(BEATS, "b", beat_with(replica="b"))
        assert len(await world.registry.replicas(POOL)) == 2
        await world.redis.hset(BEATS, "b", beat_with(**{"replica": "b", name: value}))
        found = await world.registry.replicas(POOL)
        assert found[0].beat.replica == "a" or len(found) == 2
        for replica in found:  # every read value could have been sent
            await world.registry.beat("other", replica.beat)
        assert {"a", "b"} >= set(await world.terms()) >= {"a"}


async def test_a_replica_in_a_state_of_a_later_release_is_skipped(world: World) -> None:
    """In the same way, a router of a release without the state skips a stalled replica."""
    await world.beat("a", "b")
    await world.beat("b", state=ReplicaState.STALLED)
    assert set(await world.terms()) == {"a"}
    later = beat_with(replica="b", state="molten")
    await world.redis.hset(BEATS, "b", later)
    with skipped("heartbeat", 1):
        assert [one.beat.replica for one in await world.registry.replicas(POOL)] == ["a"]


async def test_a_sender_is_counted_each_time_and_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [uuid4().hex, uuid4().hex]  # not used elsewhere in this process
    await world.beat("fine", *wrong)
    for name in wrong:
        await world.redis.hset(BEATS, name, beat_with(replica=name, bytes_per_token=None))
    with caplog.at_level(logging.WARNING), skipped("heartbeat", 6):
        for _ in range(3):
            assert [r.beat.replica for r in await world.registry.replicas(POOL)] == ["fine"]
    senders = [record.__dict__["sender"] for record in caplog.records]
    assert sorted(senders) == sorted(f"{POOL}/{name}" for name in wrong)


async def test_a_replica_whose_heartbeat_does_not_fit_can_leave(world: World) -> None:
    await world.beat("a", "b")
    await world.redis.hset(BEATS, "b", "[]")
    await world.registry.leave(POOL, "b", "1")
    assert [r.beat.replica for r in await world.registry.replicas(POOL)] == ["a"]


async def test_a_name_that_no_pool_can_have_hides_no_other(world: World) -> None:
    await world.beat("a")
    await world.redis.zadd(POOLS, dict.fromkeys((b"\xff", b"a{b", b""), world.now_ms))
    with skipped("pool", 3):
        assert await world.registry.pools() == [POOL]


@pytest.mark.parametrize(
    "row",
    [
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b"null",
        b"5",
        b'"drain"',
        b'{"ends_ms": null}',
        b'{"ends_ms": 9e12, "claim_ends_ms": 0, "tokens": "1", "prefixes": 0}',
        b'{"kind": "drain", "replica": "b", "state": "melted", "ends_ms": 9e12, "claim_ends_ms": 0,'
        b' "tokens": 1, "prefixes": 0, "budget_tokens": 0, "router": "", "reason": ""}',
        b'{"kind": "drain", "replica": "b", "state": "open", "ends_ms": "soon", "claim_ends_ms": 0,'
        b' "tokens": 1, "prefixes": 0, "budget_tokens": 0, "router": "", "reason": ""}',
    ],
)
async def test_a_mark_that_does_not_fit_hides_neither_marks_nor_replicas(
    world: World, row: bytes
) -> None:
    marks = Marks(world.redis, POOL, world.clock)
    await world.redis.hset(MARKS, "hand_off:b", row)
    await world.beat("a", "b")
    assert await marks.set(MarkKind.WARM, "a", lasts_ms=MINUTE, budget_tokens=1_000)
    if await world.redis.hexists(MARKS, "hand_off:b"):
        with skipped("mark", 1):
            assert [mark.replica for mark in await marks.all()] == ["a"]
    await world.redis.hset(MARKS, "drain:b", row)
    await world.beat("a", "b")
    assert [r.beat.replica for r in await world.registry.replicas(POOL)] == ["a", "b"]


async def test_a_queue_that_does_not_fit_hides_no_other(world: World) -> None:
    queues = Queues(world.redis, world.clock)
    await queues.report(POOL, "fine", 3, 500, 900)
    queued = Queued(requests=3, waited_ms=500, tokens=900)
    for row in (b"", b"12345678901234567", struct.pack(">4d", *4 * [float("nan")])):
        await world.redis.hset(f"pando:{{{POOL}}}:queues", "b", row)
        with skipped("queue", 1):
            assert await queues.read(POOL) == queued
        await queues.report(POOL, "fine", 3, 500, 900)  # which removes only what it may


async def test_an_operators_row_that_does_not_fit_hides_no_other(world: World) -> None:
    pools, past = ExpectedPools(world.redis), PastDecisions(world.redis)
    decision = PastDecision(at_s=1.0, before=1, after=2, reason="load")
    await pools.put("a", ["n"])
    await past.put("a", [decision])
    for row in (
        '{"models": []}',
        '{"models": [""]}',
        '{"models": "n"}',
        '{"models": ["n"], "owner": 1}',
    ):
        await world.redis.hset(EXPECTED, "b", row)
        with skipped("expected_pool", 1):
            assert await pools.read() == {"a": ("n",)}
    await world.redis.hset(EXPECTED, b"\xff", '{"models": ["n"]}')
    with skipped("pool", 1):
        assert await pools.read() == {"a": ("n",)}
    await world.redis.hset(DECISIONS, "b", '[{"at_s": 1, "before": "1", "after": 2, "reason": ""}]')
    with skipped("scaling_decisions", 1):
        assert await past.read() == {"a": (decision,)}


async def test_a_home_that_is_no_name_is_none(world: World) -> None:
    homes = Homes(world.redis)
    await homes.remember(POOL, ["r1"], "1")
    await world.redis.hset(f"pando:{{{POOL}}}:homes", "r1", b"\xff")
    with skipped("home", 1):
        assert await homes.find(POOL, "r1") is None


async def test_a_bucket_that_is_no_number_is_full(world: World) -> None:
    await world.redis.hset("pando:limits:t", "requests", "none")
    taken = await RateLimits(world.wire, world.clock).take("t", Limits(requests=10), 0)
    assert (taken.requests.left, taken.wait_ms) == (9, 0)


@pytest.mark.parametrize("rate", ["none", "nan", "-1", "inf"])
async def test_a_rate_that_is_not_a_number_is_learned_again(world: World, rate: str) -> None:
    records = UpstreamRecords(world.redis)
    await records.agree(POOL, "a", "model", "1", prefill=Sampled(5.0, 1))
    await world.redis.hset(f"pando:{{{POOL}}}:upstream:a", "prefill", rate)
    agreed = await records.agree(POOL, "a", "model", "1", prefill=Sampled(7.0, 1))
    assert agreed.prefill_tokens_per_s == 7.0
