"""A tenant's share of a replica's tree, compared with a brute-force model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.placement.prefix import chunk_keys, seed
from pando_fleet.redis.client import FleetError
from tests.examples import examples
from tests.fleet.world import POOL, World

_CAPACITY = 20  # chunks of the replica's tree
_SHARES = {"small": 0.25, "large": 0.5, "": 1.0}
_STEP = st.tuples(
    st.sampled_from(sorted(_SHARES)),
    st.text("xy", min_size=1, max_size=7),
    st.integers(0, 1_500),  # ms since the step before
)


def _keys(tenant: str, path: str) -> bytes:
    return chunk_keys(path.encode(), seed("m", salt=tenant), chunk_bytes=1)


def _limit(tenant: str) -> int:
    return int(_SHARES[tenant] * _CAPACITY)


@dataclass
class _Model:
    """Every (tenant, prefix) with the bucket and depth of its latest touch."""

    touched: dict[tuple[str, str], float] = field(default_factory=dict)

    def place(self, tenant: str, path: str, now_ms: int) -> None:
        for depth in range(1, min(len(path), _limit(tenant)) + 1):
            stamp = now_ms // 1000 - depth / 8192
            self.touched[tenant, path[:depth]] = stamp
        if tenant:
            self._trim([entry for entry in self.touched if entry[0] == tenant], _limit(tenant))
        self._trim(list(self.touched), _CAPACITY)

    def _trim(self, entries: list[tuple[str, str]], most: int) -> None:
        def age(entry: tuple[str, str]) -> tuple[float, bytes]:
            return self.touched[entry], _keys(*entry)[-8:]  # Redis orders equal scores by member

        for entry in sorted(entries, key=age)[: max(0, len(entries) - most)]:
            del self.touched[entry]


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(_STEP, max_size=25))
async def test_each_tenants_oldest_leaves_make_room_for_its_own_and_no_path_has_a_gap(
    redis_url: str, steps: list[tuple[str, str, int]]
) -> None:
    async with World.open(redis_url) as world:
        model, seen = _Model(), set[tuple[str, str]]()
        for tenant, path, elapsed_ms in steps:
            world.now_ms += elapsed_ms
            await world.beat("a", capacity_tokens=64 * _CAPACITY, bytes_per_token=4.0)
            share = _SHARES[tenant]
            placed = await world.place(_keys(tenant, path), tenant=tenant, tenant_share=share)
            await world.release(placed)
            model.place(tenant, path, world.now_ms)
            seen |= {(tenant, path[:depth]) for depth in range(1, len(path) + 1)}
            names = {_keys(*entry)[-8:]: entry for entry in seen}
            members = await world.redis.zrange(f"pando:{{{POOL}}}:tree:1:a", 0, -1)
            held = {names[bytes(member)] for member in members}  # type: ignore[arg-type]
            assert held == set(model.touched)
            assert all((tenant, path[:-1]) in held for tenant, path in held if len(path) > 1)
            for name in _SHARES:
                assert sum(tenant == name for tenant, _ in held) <= _limit(name)


async def test_a_tenant_that_floods_a_replica_leaves_the_others_their_paths(world: World) -> None:
    await world.beat("a", capacity_tokens=64 * _CAPACITY, bytes_per_token=4.0)
    for tenant in ("", "large"):
        await world.place(_keys(tenant, "xyxyx"), tenant=tenant, tenant_share=_SHARES[tenant])
    for number in range(40):
        world.now_ms += 1_000
        await world.beat("a", capacity_tokens=64 * _CAPACITY, bytes_per_token=4.0)
        flood = _keys("small", format(number, "b").replace("0", "x").replace("1", "y"))
        await world.place(flood, tenant="small", tenant_share=_SHARES["small"])
    for tenant in ("", "large"):
        assert await world.tree.match("a", "1", _keys(tenant, "xyxyx")) == 5
    assert await world.tree.size("a", "1") <= 10 + _limit("small")


async def test_a_cut_gives_the_tenants_share_back(world: World) -> None:
    await world.beat("a", capacity_tokens=64 * _CAPACITY, bytes_per_token=4.0)
    keys = _keys("small", "xxxxx")
    placed = await world.place(keys, tenant="small", tenant_share=0.25)
    world.placer.cut(placed, keys, 1)
    await world.placer.flush()
    world.now_ms += 1_000
    await world.beat("a", capacity_tokens=64 * _CAPACITY, bytes_per_token=4.0)
    await world.place(_keys("small", "yyyy"), tenant="small", tenant_share=0.25)
    assert await world.tree.match("a", "1", keys) == 1
    assert await world.tree.match("a", "1", _keys("small", "yyyy")) == 4


async def test_a_share_without_a_tenant_is_refused(world: World) -> None:
    with pytest.raises(FleetError, match="requires a tenant"):
        world.ask(tenant_share=0.5)
    with pytest.raises(FleetError, match="within 0 and 1"):
        world.ask(tenant="t", tenant_share=0.0)
