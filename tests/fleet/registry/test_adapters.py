"""Adapters in heartbeats, also between a release and the one before it."""

import json

import msgspec
import pytest

from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.registry.adapter import Adapter, AdapterPlace
from pando_fleet.registry.replica import Heartbeat
from tests.fleet.world import BEAT, POOL, World

PIRATE = Adapter(name="pirate", identity="0f" * 16, place=AdapterPlace.HOST, pinned=True)


async def test_a_worker_of_the_previous_release_names_its_adapters_only(world: World) -> None:
    await world.beat("a")
    row = json.loads(msgspec.json.encode(BEAT)) | {"replica": "a", "adapters": ["poet"]}
    row = {name: value for name, value in row.items() if not name.startswith("adapter_")}
    await world.redis.hset(PoolKeys(POOL).beats, "a", json.dumps(row))
    [replica] = await world.registry.replicas(POOL)
    assert replica.beat.adapter("poet") == Adapter(name="poet")
    assert replica.beat.adapter("pirate") is None


async def test_a_router_of_the_previous_release_reads_the_names(world: World) -> None:
    await world.beat("a", adapters=("pirate",), adapter_states=(PIRATE,), adapter_slots=4)
    row = json.loads(await world.redis.hget(PoolKeys(POOL).beats, "a") or b"")
    assert row["adapters"] == ["pirate"]  # texts, the only form that it decodes
    assert msgspec.json.decode(json.dumps(row), type=Heartbeat).adapter("pirate") == PIRATE


@pytest.mark.parametrize("identity", ["0f", "0F" * 16, "0f" * 17, "x" * 32])
async def test_an_impossible_identity_is_not_sent(world: World, identity: str) -> None:
    wrong = Adapter(name="pirate", identity=identity)
    with pytest.raises(FleetError, match="invalid heartbeat"):
        await world.beat("a", adapters=("pirate",), adapter_states=(wrong,))


def test_two_names_of_one_adapter_have_one_key_and_unknown_ones_their_own() -> None:
    assert Adapter(name="corsair", identity=PIRATE.identity).key == PIRATE.key
    keys = {PIRATE.key, Adapter(name="pirate").key, Adapter(name="poet").key}
    assert len(keys) == 3 and {len(key) for key in keys} == {32}
