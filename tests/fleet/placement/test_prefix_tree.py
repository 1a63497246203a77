"""The prefix tree, compared with a brute-force tree that keeps every touch of every prefix."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.placement.prefix import chunk_keys
from tests.examples import examples
from tests.fleet.world import POOL, World

_REPLICAS = ("a", "b")
_PATHS = st.text("xy", min_size=1, max_size=7)  # one letter per chunk
_TREE = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _keys(path: str) -> bytes:
    return chunk_keys(path.encode(), seed=0, chunk_bytes=1)


def _prefixes(path: str) -> list[str]:
    return [path[:depth] for depth in range(1, len(path) + 1)]


@dataclass
class BruteForceTree:
    """Every prefix with the time and depth of its latest touch, without hashes and sorted sets."""

    touched: dict[str, float] = field(default_factory=dict)

    def touch(self, path: str, capacity: int, now_ms: int) -> None:
        for prefix in _prefixes(path)[:capacity]:
            stamp = now_ms // 1000 - len(prefix) / 8192
            self.touched[prefix] = max(stamp, self.touched.get(prefix, stamp))
        while len(self.touched) > capacity:
            # Redis orders equal scores by member.
            oldest = min(
                self.touched, key=lambda prefix: (self.touched[prefix], _keys(prefix)[-8:])
            )
            del self.touched[oldest]

    def match(self, path: str) -> int:
        return max((len(p) for p in _prefixes(path) if p in self.touched), default=0)


async def _held(world: World, replica: str, paths: set[str]) -> set[str]:
    """The prefixes that Redis holds for a replica, recognized by their keys."""
    names = {_keys(prefix)[-8:]: prefix for path in paths for prefix in _prefixes(path)}
    members = await world.redis.zrange(f"pando:{{{POOL}}}:tree:1:{replica}", 0, -1)
    return {names[bytes(member)] for member in members}  # type: ignore[arg-type]


_TOUCH = st.tuples(
    st.just("touch"),
    st.sampled_from(_REPLICAS),
    _PATHS,
    st.integers(1, 12),  # capacity
    st.integers(-900, 1_500),  # ms since the step before: a failover may set the clock back
)
_EXPIRE = st.tuples(
    st.just("expire"), st.sampled_from(_REPLICAS), st.just("x"), st.just(1), st.just(0)
)


@_TREE
@given(steps=st.lists(st.one_of(_TOUCH, _TOUCH, _TOUCH, _EXPIRE), max_size=25), asked=_PATHS)
async def test_matches_equal_brute_force_and_every_set_stays_prefix_closed(
    redis_url: str, steps: list[tuple[str, str, str, int, int]], asked: str
) -> None:
    async with World.open(redis_url) as world:
        models = {replica: BruteForceTree() for replica in _REPLICAS}
        paths = {asked}
        for kind, replica, path, capacity, elapsed_ms in steps:
            paths.add(path)
            world.now_ms += elapsed_ms
            if kind == "touch":
                await world.tree.touch(replica, "1", _keys(path), capacity)
                models[replica].touch(path, capacity, world.now_ms)
            else:
                await world.redis.pexpire(f"pando:{{{POOL}}}:tree:1:{replica}", 0)
                models[replica].touched.clear()
            held = await _held(world, replica, paths)
            assert held == set(models[replica].touched)
            assert all(prefix[:-1] in held for prefix in held if len(prefix) > 1)
            assert await world.tree.size(replica, "1") == len(held)
            for known in sorted({path, asked}):
                for name, model in models.items():
                    assert await world.tree.match(name, "1", _keys(known)) == model.match(known)


@_TREE
@given(touched=st.lists(_PATHS, min_size=1, max_size=6), data=st.data())
async def test_a_cut_path_is_gone_at_once_and_what_left_it_before_stays(
    redis_url: str, touched: list[str], data: st.DataObject
) -> None:
    victim = data.draw(st.sampled_from(touched))
    depth = data.draw(st.integers(0, len(victim)))
    async with World.open(redis_url) as world:
        for path in touched:
            await world.tree.touch("a", "1", _keys(path), 100)
        await world.tree.cut("a", "1", _keys(victim), depth)
        assert await world.tree.match("a", "1", _keys(victim)) == depth
        for path in touched:
            if path[: depth + 1] != victim[: depth + 1]:
                assert await world.tree.match("a", "1", _keys(path)) == len(path)


async def test_a_path_longer_than_one_redis_call_may_carry_is_held_and_cut(world: World) -> None:
    keys = chunk_keys(b"z" * 3_500, seed=0, chunk_bytes=1)
    await world.tree.touch("a", "1", keys, 100_000)
    assert await world.tree.match("a", "1", keys) == 3_500
    await world.tree.cut("a", "1", keys, 1_234)
    assert await world.tree.size("a", "1") == await world.tree.match("a", "1", keys) == 1_234


async def test_a_new_incarnation_starts_with_an_empty_tree_and_the_old_one_expires(
    world: World,
) -> None:
    await world.tree.touch("a", "1", _keys("xyx"), 100)
    assert await world.tree.match("a", "2", _keys("xyx")) == 0
    assert await world.redis.pttl(f"pando:{{{POOL}}}:tree:1:a") > 0
