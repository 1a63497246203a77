"""A decision's signals, from records that workers and routers write to a real Redis."""

from collections.abc import AsyncIterator

import pytest

from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.records.queues import Queued, Queues
from pando_fleet.redis.client import FleetUnavailable
from pando_fleet.registry.replica import ReplicaState
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.scaling import History, Signals, Snapshot, decide
from tests.fleet.redis_server import VALKEY, RedisServer
from tests.fleet.world import POOL, World
from tests.operator.scaling.pool_model import AT_ONCE

LOADED = {
    "capacity_tokens": 100_000,
    "pinned_tokens": 60_000,
    "cached_tokens": 40_000,
    "running": 3,
    "waiting": 2,
    "waiting_tokens": 5_000,
    "waiting_output_tokens": 1_000,
    "prompt_tokens_total": 700,
    "hot_evicted_tokens_total": 90,
}


@pytest.fixture
async def world(valkey_url: str) -> AsyncIterator[World]:
    async with World.open(valkey_url) as world:
        yield world


async def _signals(world: World) -> Signals:
    replicas = await world.registry.replicas(POOL)
    return Signals.of(replicas, await Queues(world.redis, world.clock).read(POOL))


async def test_a_decision_sees_what_heartbeats_and_routers_report(world: World) -> None:
    await world.beat("a", **LOADED)
    await Queues(world.redis, world.clock).report(POOL, "r1", 4, 2_500, 3_000)
    world.now_ms += 700
    signals = await _signals(world)
    (replica,) = signals.replicas
    assert (replica.beat.replica, replica.beat.incarnation, replica.age_ms) == ("a", "1", 700)
    assert {name: getattr(replica.beat, name) for name in LOADED} == LOADED
    assert signals.queued == Queued(4, waited_ms=3_200, tokens=3_000)
    snapshot = Snapshot(current=1, ready=1, signals=signals, start_s=None, history=History())
    decision = decide(snapshot, ScalingPolicy(max_replicas=5), world.now_ms / 1000)
    assert decision.pressure == (60_000 + 5_000 + 1_000 + 3_000) / 100_000


async def test_room_of_replicas_that_take_no_requests_does_not_count(world: World) -> None:
    await world.beat("ready", "drains", "warms")
    await world.beat("starts", state=ReplicaState.STARTING)
    await world.beat("ends", state=ReplicaState.DRAINING)
    marks = Marks(world.redis, POOL, world.clock)
    await marks.set(MarkKind.DRAIN, "drains", lasts_ms=60_000)
    await marks.set(MarkKind.WARM, "warms", lasts_ms=60_000, budget_tokens=1_000)
    assert [one.beat.replica for one in (await _signals(world)).replicas] == ["ready"]


async def test_a_stalled_replica_has_no_room_and_none_that_a_smaller_pool_could_count_on(
    world: World,
) -> None:
    """Pressure, and the check that the rest stays under the target, use only the others."""
    load = {"capacity_tokens": 100_000, "pinned_tokens": 40_000, "running": 4}
    await world.beat("a", "b", **load)
    await world.beat("small", capacity_tokens=10_000, state=ReplicaState.STALLED)
    snapshot = Snapshot(
        current=3, ready=2, signals=await _signals(world), start_s=None, history=History()
    )
    policy = ScalingPolicy(max_replicas=5, behavior=AT_ONCE)
    decision = decide(snapshot, policy, world.now_ms / 1000)
    assert decision.signals_ok
    assert decision.pressure == 80_000 / 200_000
    assert decision.desired == 2, "with the small one in place of another it would be 3"


async def test_a_silent_replica_keeps_the_size_of_its_pool(world: World) -> None:
    await world.beat("silent", "heard")
    world.now_ms += 6_000
    await world.beat("heard")
    snapshot = Snapshot(
        current=2, ready=2, signals=await _signals(world), start_s=None, history=History()
    )
    decision = decide(snapshot, ScalingPolicy(max_replicas=5), world.now_ms / 1000)
    assert (decision.desired, decision.signals_ok) == (2, False)
    assert decision.problem == (
        "no fresh signals from 1 of 2 ready replicas, the oldest signals are 6 s old"
    )


async def test_a_redis_that_is_away_is_no_signal_of_an_empty_pool() -> None:
    server = RedisServer(VALKEY)
    try:
        server.start()
        async with World.open(server.url) as world:
            await world.beat("a")
            server.stop()
            with pytest.raises(FleetUnavailable):
                await _signals(world)
    finally:
        server.close()
