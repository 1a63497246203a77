"""Where requests of LoRA adapters go: a load and the wait for a slot are seconds like others."""

from dataclasses import replace
from typing import Any

import pytest

from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.rows import ADAPTERS, Candidate
from pando_fleet.registry.adapter import Adapter, AdapterPlace
from tests.fleet.world import BEAT, POOL, World, path

PIRATE, POET, SQL = (Adapter(name=name, identity=32 * f"{n}") for n, name in enumerate("abc"))


async def beat(world: World, replica: str, **fields: Any) -> None:
    """A heartbeat of a replica whose `device`, `waiting`, `host` and `disk` hold adapters."""
    places = [(place, fields.pop(place.value, ())) for place in AdapterPlace]
    states = tuple(replace(each, place=place) for place, held in places for each in held)
    slots = {"adapter_slots": 4, "free_adapter_slots": 2, "adapter_load_s": 0.25} | fields
    slots["adapters_waiting"] = sum(each.place is AdapterPlace.WAITING for each in states)
    await world.beat(replica, adapter_states=states, **slots)


async def terms(world: World, adapter: Adapter, keys: bytes = b"") -> dict[str, Candidate]:
    asked = world.ask(keys, adapter=adapter.key)
    return {each.replica: each for each in await world.placer.explain(asked)}


async def test_a_missing_adapter_costs_its_load_and_one_on_disk_also_its_reading(
    world: World,
) -> None:
    await beat(world, "device", device=[PIRATE], adapter_read_s=0.5)
    await beat(world, "host", host=[PIRATE], adapter_read_s=0.5)
    await beat(world, "disk", disk=[PIRATE], adapter_read_s=0.5)
    found = await terms(world, PIRATE)
    assert {name: each.adapter_load_s for name, each in found.items()} == {
        "device": 0.0, "host": 0.25, "disk": 0.75,
    }  # fmt: skip
    base = found["device"].cost_s
    assert found["host"].cost_s == pytest.approx(base + 0.25)
    assert found["disk"].cost_s == pytest.approx(base + 0.75)
    assert (await world.place(adapter=PIRATE.key)).chosen.replica == "device"


async def test_where_requests_hold_all_slots_the_wait_for_one_counts(world: World) -> None:
    full = {"free_adapter_slots": 0, "adapter_slot_wait_s": 2.0}
    await beat(world, "full", device=[POET], host=[PIRATE], **full)
    await beat(world, "queue", device=[POET], waiting=[SQL], host=[PIRATE], **full)
    await beat(world, "same", device=[POET], waiting=[SQL, PIRATE], **full)
    found = await terms(world, PIRATE)
    waits = {name: each.adapter_wait_s for name, each in found.items()}
    assert waits == {"full": 2.0, "queue": 4.0, "same": 4.0}, "it is the second in both"
    assert found["full"].cost_s == pytest.approx(found["queue"].cost_s - 2.0)
    held = await terms(world, POET)
    assert {each.adapter_wait_s for name, each in held.items() if name != "same"} == {0.0}


async def test_a_busy_holder_loses_when_waiting_there_costs_more_than_a_load(world: World) -> None:
    await beat(world, "warm", device=[PIRATE])
    await beat(world, "cold", host=[PIRATE])
    places = [(await world.place(adapter=PIRATE.key)).chosen.replica for _ in range(6)]
    assert places[0] == "warm" and "cold" in places


async def test_a_replica_that_will_load_it_is_as_good_as_one_that_has(world: World) -> None:
    """Else requests that come before its next heartbeat would load it at every replica."""
    await beat(world, "a", host=[PIRATE], adapter_load_s=5.0)
    await beat(world, "b", host=[PIRATE], adapter_load_s=5.0)
    first = (await world.place(prompt_tokens=10, adapter=PIRATE.key)).chosen.replica
    for _ in range(3):
        assert (await world.place(prompt_tokens=10, adapter=PIRATE.key)).chosen.replica == first
    found = await terms(world, PIRATE)
    assert found[first].adapter_load_s == 0.0
    await beat(world, first, host=[PIRATE], adapter_load_s=5.0)  # its own word counts
    assert (await terms(world, PIRATE))[first].adapter_load_s == 5.0


async def test_slots_run_out_between_heartbeats(world: World) -> None:
    await beat(world, "a", host=[PIRATE, POET, SQL], free_adapter_slots=1, adapter_slot_wait_s=2.0)
    for adapter, wait_s in ((PIRATE, 0.0), (POET, 2.0), (SQL, 4.0), (POET, 2.0 * 2), (PIRATE, 0)):
        placed = await world.place(adapter=adapter.key)
        assert placed.chosen.adapter_wait_s == wait_s, adapter


async def test_prompts_of_one_call_see_the_loads_of_those_before(world: World) -> None:
    await beat(world, "a", host=[PIRATE], adapter_load_s=5.0)
    await beat(world, "b", host=[PIRATE], adapter_load_s=5.0)
    asks = [world.ask(prompt_tokens=10, adapter=PIRATE.key if n != 1 else "") for n in range(3)]
    placed = [await place for place in [world.placer.place(ask) for ask in asks]]
    assert placed[2].chosen.replica == placed[0].chosen.replica
    assert [each.chosen.adapter_load_s for each in placed] == [5.0, 0.0, 0.0]


async def test_loads_run_one_after_the_other(world: World) -> None:
    await beat(world, "a", host=[PIRATE, POET], adapters_loading=1)
    assert (await terms(world, PIRATE))["a"].adapter_load_s == 0.5
    await world.place(adapter=PIRATE.key)
    assert (await terms(world, POET))["a"].adapter_load_s == 0.75


async def test_of_adapters_that_would_give_way_the_one_unused_for_longest_does(
    world: World,
) -> None:
    """As often as the ages of two say, it is needed again within the pool's mean age."""
    await beat(world, "old", device=[POET], host=[PIRATE], adapter_idle_s=60.0)
    await beat(world, "young", device=[SQL], host=[PIRATE], adapter_idle_s=20.0)
    await beat(world, "empty", host=[PIRATE], adapter_idle_s=0.0)
    found = await terms(world, PIRATE)
    assert {name: each.adapter_evict_s for name, each in found.items()} == {
        "old": pytest.approx(0.25 * 40 / (60 + 40)),
        "young": pytest.approx(0.25 * 40 / (20 + 40)),
        "empty": 0.0,
    }
    assert (await world.place(adapter=PIRATE.key)).chosen.replica == "empty"
    await beat(world, "old", device=[POET], host=[PIRATE], adapter_idle_s=60.0, adapter_read_s=0.5)
    again = (await terms(world, PIRATE))["old"].adapter_evict_s
    assert again == pytest.approx(0.75 * 40 / (60 + 40)), "it may be on disk by then"


async def test_a_load_that_was_slow_once_keeps_no_adapter_away(world: World) -> None:
    await beat(world, "slow", host=[PIRATE], adapter_load_s=0.75)
    await beat(world, "fast", host=[PIRATE], adapter_load_s=0.25)
    assert {each.adapter_load_s for each in (await terms(world, PIRATE)).values()} == {0.5}


async def test_requests_for_the_base_cost_the_same_as_ever(world: World) -> None:
    await beat(world, "a", free_adapter_slots=0)
    await world.beat("b")
    costs = {each.cost_s for each in (await world.terms()).values()}
    assert len(costs) == 1
    placed = (await world.place()).chosen
    assert (placed.adapter_load_s, placed.adapter_wait_s) == (0.0, 0.0)


async def test_times_that_nobody_has_measured_are_the_others_mean(world: World) -> None:
    await beat(world, "new", host=[PIRATE], free_adapter_slots=0, adapter_load_s=0.0)
    assert (await terms(world, PIRATE))["new"].adapter_load_s == 0.1
    assert (await terms(world, PIRATE))["new"].adapter_wait_s == 1.0
    await beat(world, "old", host=[PIRATE], adapter_load_s=0.5, adapter_slot_wait_s=3.0)
    assert (await terms(world, PIRATE))["new"].adapter_load_s == 0.5
    assert (await terms(world, PIRATE))["new"].adapter_wait_s == 3.0


async def test_a_worker_that_does_not_say_where_its_adapters_are_is_taken_to_have_them(
    world: World,
) -> None:
    await world.beat("previous", adapters=(PIRATE.name,))
    await beat(world, "cold", host=[PIRATE])
    found = await terms(world, PIRATE)
    assert found["previous"].adapter_load_s == 0.0 < found["cold"].adapter_load_s


async def test_a_cached_prompt_wins_over_a_warm_adapter_where_it_saves_more(world: World) -> None:
    keys = path("held", 16)  # 1,024 tokens, a second
    await beat(world, "warm", device=[PIRATE])
    await beat(world, "cached", host=[PIRATE])
    await world.tree.touch("cached", "1", keys, 10_000)
    assert (await world.place(keys, 1_030, adapter=PIRATE.key)).chosen.replica == "cached"


async def test_a_new_incarnation_and_one_that_left_have_no_slots_of_the_old(world: World) -> None:
    adapters = PoolKeys(POOL).adapters
    await beat(world, "a", device=[PIRATE], incarnation="1")
    await beat(world, "b", device=[PIRATE])
    row = await world.redis.hget(adapters, "a") or b""
    assert ADAPTERS.unpack_row(bytes(row)).free_slots == 2  # type: ignore[arg-type]
    await world.beat("a", incarnation="2")
    fields = [bytes(field) for field in await world.redis.hkeys(adapters)]  # type: ignore[arg-type]
    assert {field.split(b"\0")[0] for field in fields} == {b"b"}
    await world.registry.leave(POOL, "b", BEAT.incarnation)
    assert await world.redis.exists(adapters) == 0


async def test_a_heartbeat_leaves_nothing_of_what_was_said_before(world: World) -> None:
    """Neither of the heartbeat before nor of a placement since then."""
    adapters = PoolKeys(POOL).adapters
    await beat(world, "a", device=[SQL])
    after_sql = await world.redis.hgetall(adapters)
    await beat(world, "a", device=[POET], host=[SQL])
    assert (await world.place(adapter=PIRATE.key)).chosen.adapter_load_s == 0.25
    assert await world.redis.hlen(adapters) == 2 + 3
    await beat(world, "a", device=[SQL])
    assert await world.redis.hgetall(adapters) == after_sql


async def test_a_thousand_adapters_come_and_go(world: World) -> None:
    """More than the fields of one call."""
    many = [Adapter(name=f"adapter-{n}") for n in range(1024)]
    await beat(world, "a", host=many)
    assert (await terms(world, many[-1]))["a"].adapter_load_s == 0.25
    assert await world.redis.hlen(PoolKeys(POOL).adapters) == 2 + 1024
    await beat(world, "a", host=many[:1])
    assert await world.redis.hlen(PoolKeys(POOL).adapters) == 2 + 1


async def test_the_row_of_a_silent_replica_is_forgotten_with_it(world: World) -> None:
    await beat(world, "a", device=[PIRATE])
    world.now_ms += 60_001
    await world.beat("b")
    assert await world.redis.exists(PoolKeys(POOL).adapters) == 0


async def test_a_row_that_cannot_be_read_does_not_keep_its_replica_from_placement(
    world: World,
) -> None:
    await beat(world, "a", device=[PIRATE])
    await world.redis.hset(PoolKeys(POOL).adapters, "a", b"\x63nonsense")
    assert (await world.place(adapter=PIRATE.key)).chosen.adapter_load_s == 0.0


async def test_an_empty_pool_has_no_place_for_an_adapter_either(world: World) -> None:
    assert await terms(world, PIRATE) == {}
