"""The worth of caches, compared with a plain count over all trees."""

import random
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.placement.worth import Worths
from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.registry.replica import ReplicaState
from tests.examples import examples
from tests.fleet.world import POOL, World, path

HALF_LIFE_S = 60.0
TOKENS = 64  # per chunk, at 4 bytes per token
NAMES = ("a", "b", "c")

_TOUCH = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(("x", "y", "z")),
    st.integers(1, 6),  # chunks
    st.integers(0, 90),  # s until the next
)


def _plain(held: dict[str, dict[bytes, int]], name: str, now_ms: int) -> float:
    """`held` has the time when each chunk was touched, to the second."""
    others = set().union(*(held[other] for other in held if other != name))
    return sum(
        float(0.5 ** ((now_ms - 1000 * (at_ms // 1000)) / 1000 / HALF_LIFE_S))
        for chunk, at_ms in held[name].items()
        if chunk not in others
    )


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(touches=st.lists(_TOUCH, max_size=25))
async def test_it_is_what_no_other_holds_by_its_recency(
    redis_url: str, touches: list[tuple[str, str, int, int]]
) -> None:
    async with World.open(redis_url) as world:
        held: dict[str, dict[bytes, int]] = {name: {} for name in NAMES}
        for name, text, chunks, pause_s in touches:
            keys = path(text * 300, chunks)
            await world.tree.touch(name, "1", keys, 1_000)
            for depth in range(chunks):
                held[name][keys[8 * depth : 8 * depth + 8]] = world.now_ms
            world.now_ms += 1000 * pause_s
        await world.beat(*NAMES)
        worths = Worths(world.redis, POOL, world.clock, half_life_s=HALF_LIFE_S)
        found = await worths.read(await world.registry.replicas(POOL))
        assert found == pytest.approx(
            {name: TOKENS * _plain(held, name, world.now_ms) for name in NAMES}, abs=0.01
        )


async def test_what_only_a_leaving_replica_has_besides_counts_as_unique(world: World) -> None:
    for name in ("stays", "leaves", "starts"):
        await world.tree.touch(name, "1", path("shared", 10), 1_000)
    await world.beat("stays", "leaves")
    await world.beat("starts", state=ReplicaState.STARTING)
    worths = Worths(world.redis, POOL, world.clock)
    both = await worths.read(await world.registry.replicas(POOL))
    assert both == {"stays": 0.0, "leaves": 0.0}
    await Marks(world.redis, POOL, world.clock).set(MarkKind.DRAIN, "leaves", lasts_ms=60_000)
    assert await worths.read(await world.registry.replicas(POOL)) == {"stays": 10 * TOKENS}


async def test_a_replica_that_fell_silent_saves_nothing(world: World) -> None:
    for name in ("silent", "heard"):
        await world.tree.touch(name, "1", path("shared", 10), 1_000)
    await world.beat("silent")
    world.now_ms += 4_000
    await world.beat("heard")
    worths = Worths(world.redis, POOL, world.clock, half_life_s=1e6)
    found = await worths.read(await world.registry.replicas(POOL))
    assert found == pytest.approx({"heard": 10 * TOKENS}, rel=1e-3)


async def test_a_sample_of_a_large_tree_keeps_the_order_and_is_close(world: World) -> None:
    """Trees with 20, 50 and 80 % unique chunks, of which a fifth is sampled."""
    rng = random.Random(5)
    shares = {"little": 0.2, "half": 0.5, "much": 0.8}
    held: dict[str, dict[bytes, int]] = {name: {} for name in shares}
    for step in range(300):
        for name, share in shares.items():
            own = rng.random() < share
            keys = path(f"{name if own else 'all'} {step} " * 20, 10)
            for each in [name] if own else shares:
                await world.tree.touch(each, "1", keys, 10_000)
                for depth in range(10):
                    held[each][keys[8 * depth : 8 * depth + 8]] = world.now_ms
        world.now_ms += 1_000
    await world.beat(*shares)
    worths = Worths(world.redis, POOL, world.clock, half_life_s=HALF_LIFE_S, most_members=800)
    found = await worths.read(await world.registry.replicas(POOL))
    exact = {name: TOKENS * _plain(held, name, world.now_ms) for name in shares}
    assert min(len(tree) for tree in held.values()) > 3_000
    for name in shares:
        assert found[name] == pytest.approx(exact[name], rel=0.2)
    for one, other in combinations(shares, 2):
        assert (found[one] < found[other]) == (exact[one] < exact[other])


async def test_of_a_large_tree_the_newest_count_and_of_others_the_middle_of_each_stratum(
    world: World,
) -> None:
    """128 strata of 3 chunks; another replica also has the middle one of each."""
    newest, size = 8, 8 + 3 * 128
    for rank in reversed(range(size)):
        await world.tree.touch("a", "1", path(f"{rank} ", 1), 1_000)
        if rank >= newest and (rank - newest) % 3 == 1:
            await world.tree.touch("b", "1", path(f"{rank} ", 1), 1_000)
        world.now_ms += 1_000
    await world.beat("a", "b")
    counted = {2 * newest: newest, size: newest + 2 * 128}
    for most, chunks in counted.items():
        worths = Worths(world.redis, POOL, world.clock, half_life_s=1e9, most_members=most)
        found = await worths.read(await world.registry.replicas(POOL))
        assert found["a"] == pytest.approx(TOKENS * chunks, rel=1e-4)
