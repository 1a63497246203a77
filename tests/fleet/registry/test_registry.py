"""Heartbeats as others see them: complete, aged by Redis's clock, kept for a while, gone on
leave."""

from dataclasses import replace
from typing import Any

import pytest

from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import POOLS, PoolKeys
from pando_fleet.redis.layout import calls
from pando_fleet.redis.layout.constants import FRESH_MS, RETENTION_MS
from pando_fleet.redis.scripts import Script
from pando_fleet.registry.adapter import Adapter, AdapterPlace
from pando_fleet.registry.registry import NameTakenError, Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from tests.fleet.world import BEAT, POOL, World

FULL = Heartbeat(
    replica="pod-0",
    incarnation="f00d",
    url="http://10.0.0.7:8000",
    model="llama/ä",
    state=ReplicaState.DRAINING,
    endpoints=("/v1/completions", "/tokenize"),
    adapters=("pirate", "poet/ä"),
    adapter_states=(
        Adapter(name="pirate", identity="0f" * 16, place=AdapterPlace.DEVICE, pinned=True),
        Adapter(name="poet/ä"),
    ),
    adapter_slots=8,
    free_adapter_slots=7,
    adapters_loading=2,
    adapter_idle_s=3.5,
    adapters_waiting=1,
    adapter_load_s=0.02,
    adapter_read_s=0.3,
    adapter_slot_wait_s=1.5,
    capacity_tokens=1,
    max_request_tokens=2,
    pinned_tokens=3,
    cached_tokens=4,
    running=5,
    waiting=6,
    waiting_tokens=7,
    prefill_tokens_per_s=8.5,
    decode_tokens_per_s=9.5,
    release_tokens_per_s=10.5,
    bytes_per_token=4.25,
    prompt_tokens_total=12,
    cached_prompt_tokens_total=13,
    source_hits_total=14,
    source_misses_total=15,
)


async def test_a_heartbeat_comes_back_whole_with_its_age(world: World) -> None:
    await world.registry.beat(POOL, FULL)
    world.now_ms += 1_234
    [replica] = await world.registry.replicas(POOL)
    assert replica.beat == FULL
    assert replica.age_ms == 1_234


async def test_the_latest_heartbeat_of_each_replica_counts_and_names_are_sorted(
    world: World,
) -> None:
    await world.beat("b", running=1)
    await world.beat("c", "a")
    await world.beat("b", running=2)
    found = await world.registry.replicas(POOL)
    assert [(r.beat.replica, r.beat.running) for r in found] == [("a", 0), ("b", 2), ("c", 0)]


async def test_without_a_clock_the_age_is_measured_by_redis(world: World) -> None:
    registry = Registry(world.redis)
    await registry.beat(POOL, FULL)
    [replica] = await registry.replicas(POOL)
    assert 0 <= replica.age_ms < 10_000


async def test_a_silent_replica_stays_listed_for_a_minute(world: World) -> None:
    await world.beat("a", "b")
    world.now_ms += 59_999
    await world.beat("b")
    assert [(r.beat.replica, r.age_ms) for r in await world.registry.replicas(POOL)] == [
        ("a", 59_999),
        ("b", 0),
    ]
    world.now_ms += 1
    assert [r.beat.replica for r in await world.registry.replicas(POOL)] == ["b"]
    await world.beat("b")
    assert await world.redis.hlen(f"pando:{{{POOL}}}:beats") == 1


async def test_a_replica_that_leaves_is_gone_at_once_with_its_tree(world: World) -> None:
    await world.beat("a", "b")
    await world.tree.touch("a", "1", b"12345678", 10)
    await world.registry.leave(POOL, "a", "1")
    assert [r.beat.replica for r in await world.registry.replicas(POOL)] == ["b"]
    assert list(await world.terms()) == ["b"]
    assert await world.tree.size("a", "1") == 0


async def test_an_old_incarnation_that_leaves_late_does_not_remove_the_new_one(
    world: World,
) -> None:
    await world.beat("a", incarnation="1")
    await world.beat("a", incarnation="2")
    await world.registry.leave(POOL, "a", "1")
    [replica] = await world.registry.replicas(POOL)
    assert replica.beat.incarnation == "2"
    assert list(await world.terms()) == ["a"]


async def test_pools_are_listed_while_any_of_their_replicas_was_heard_of_lately(
    world: World,
) -> None:
    await world.registry.beat("old", replace(BEAT, replica="a"))
    world.now_ms += 60_000
    await world.registry.beat("team/new", replace(BEAT, replica="a"))
    await world.registry.beat("also new", replace(BEAT, replica="a"))
    assert await world.registry.pools() == ["also new", "team/new"]


async def test_a_silent_pool_with_leases_keeps_no_other_one_in_redis(world: World) -> None:
    for pool in (POOL, *"abcdef"):
        await world.registry.beat(pool, replace(BEAT, replica="a"))
        await world.redis.zadd(PoolKeys(pool).routers, {"r1": world.now_ms})
    lease = await world.place(lease_ms=RETENTION_MS + 1)
    await world.redis.zadd(POOLS, {b"\xff": world.now_ms})  # no pool's name
    world.now_ms += RETENTION_MS
    await world.registry.beat("living", replace(BEAT, replica="a"))
    assert await world.registry.pools() == ["living"]
    assert await world.redis.zrange(POOLS, 0, -1) == [POOL.encode(), b"living"]
    assert not await world.redis.keys("pando:{?}:*")
    await world.release(lease)
    assert await world.registry.pools() == ["living"]
    assert not await world.redis.keys(f"pando:{{{POOL}}}:*")


async def test_a_pool_that_is_heard_while_it_is_forgotten_keeps_its_name(world: World) -> None:
    call = calls.ForgetNames(POOLS, world.now_ms)
    await world.registry.beat("a", replace(BEAT, replica="a"))
    world.now_ms += 1
    await world.registry.beat("b", replace(BEAT, replica="a"))
    await Script(world.redis, calls.ForgetNames)(call, "a", "b", "c")
    assert await world.registry.pools() == ["b"]


async def test_pools_do_not_see_each_other(world: World) -> None:
    await world.beat("a")
    await world.registry.beat("other", replace(BEAT, replica="b"))
    assert [r.beat.replica for r in await world.registry.replicas("other")] == ["b"]
    assert list(await world.terms()) == ["a"]


@pytest.mark.parametrize(
    "beat",
    [
        replace(FULL, replica=""),
        replace(FULL, incarnation=""),
        replace(FULL, incarnation="a:b"),
        replace(FULL, bytes_per_token=0.0),
        replace(FULL, prefill_tokens_per_s=float("nan")),
    ],
)
async def test_a_heartbeat_that_would_confuse_placement_is_refused(
    world: World, beat: Heartbeat
) -> None:
    with pytest.raises(FleetError):
        await world.registry.beat(POOL, beat)
    assert await world.registry.replicas(POOL) == []


@pytest.mark.parametrize("pool", ["", "a{b", "a}b"])
async def test_a_pool_name_that_would_break_the_hash_tag_is_refused(
    world: World, pool: str
) -> None:
    with pytest.raises(FleetError, match="pool"):
        await world.registry.replicas(pool)


async def test_a_live_replicas_name_is_refused_to_another_and_it_learns_which_one_wanted_it(
    world: World,
) -> None:
    first = replace(FULL, state=ReplicaState.READY)
    second = replace(first, incarnation="beef", url="http://10.0.0.8:8000")
    assert await world.registry.beat(POOL, first) is None
    heard = set()
    for _ in range(2):
        with pytest.raises(NameTakenError, match=r"'pod-0' is the name of .*10\.0\.0\.7") as taken:
            await world.registry.beat(POOL, second)
        assert taken.value.url == first.url
        heard.add(taken.value.heard)
        world.now_ms += 100
    assert len(heard) == 1, "the first one has sent nothing since"
    [replica] = await world.registry.replicas(POOL)
    assert replica.beat == first
    assert await world.registry.beat(POOL, first) == second.url
    assert await world.registry.beat(POOL, first) is None, "it is reported once"
    with pytest.raises(NameTakenError) as taken:
        await world.registry.beat(POOL, second)
    assert taken.value.heard not in heard


@pytest.mark.parametrize(
    ("held", "takes", "waits_ms"),
    [
        ({}, {"incarnation": "beef"}, 0),
        ({"state": ReplicaState.DRAINING}, {"incarnation": "beef", "url": "http://b"}, 0),
        ({}, {"incarnation": "beef", "url": "http://b"}, FRESH_MS + 1),
        ({}, {"url": "http://b"}, 0),
    ],
    ids=["at the same place", "from one that drains", "from one that is silent", "by itself"],
)
async def test_a_name_is_taken_over(
    world: World, held: dict[str, Any], takes: dict[str, Any], waits_ms: int
) -> None:
    ready = replace(FULL, state=ReplicaState.READY)
    await world.registry.beat(POOL, replace(ready, **held))
    world.now_ms += waits_ms
    await world.registry.beat(POOL, replace(ready, **takes))
    [replica] = await world.registry.replicas(POOL)
    assert replica.beat == replace(ready, **takes)


async def test_a_name_is_free_as_soon_as_its_owner_has_left(world: World) -> None:
    ready = replace(FULL, state=ReplicaState.READY)
    await world.registry.beat(POOL, ready)
    await world.registry.leave(POOL, ready.replica, ready.incarnation)
    await world.registry.beat(POOL, replace(ready, incarnation="beef", url="http://b"))
