"""A Redis that runs out of memory: records stay, placements go on, trees lose their oldest
paths."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.records.limits import Limits
from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.records.queues import Queues
from pando_fleet.records.rate_limits import RateLimits
from pando_fleet.redis.keys import POOLS, PoolKeys
from pando_fleet.redis.layout.constants import KEY_BYTES, RETENTION_MS
from pando_fleet.registry.registry import ANNOUNCE_MS
from pando_fleet.registry.upstreams import UpstreamRecords
from tests.examples import examples
from tests.fleet.redis_server import REDIS, VALKEY, RedisServer
from tests.fleet.world import BEAT, POOL, World, path
from tests.ports import free_port
from tests.waiting import until_async

MIB = 1 << 20
REPLICAS = ("a", "b", "c", "d")
CHUNKS = 300  # per prompt
BEAT_EVERY = 20  # placements
POLICIES = ("noeviction", "volatile-lru", "volatile-ttl", "allkeys-lru")
KEYS = PoolKeys(POOL)


@pytest.fixture(params=[VALKEY, REDIS], ids=["valkey", "redis"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with closing(RedisServer(request.param, "--save", "", "--appendonly", "no")) as server:
        server.start()
        yield server


@dataclass
class Load:
    """Requests, half of which repeat a recent one, on replicas that could hold them all."""

    world: World
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    made: int = 0
    paths: list[bytes] = field(default_factory=list)

    async def beat(self) -> None:
        await self.world.beat(*REPLICAS, capacity_tokens=10_000_000)

    async def run(self, requests: int, *, beats: bool = True) -> float:
        """Returns the share of repeated prompts that were found completely."""
        repeated = found = 0
        for number in range(requests):
            if number % BEAT_EVERY == 0:
                self.world.now_ms += 500 if beats else 0
                if beats or number == 0:
                    await self.beat()
            again = self.paths and self.rng.random() < 0.5
            keys = self.rng.choice(self.paths[-20:]) if again else self._new()
            placement = await self.world.place(keys, prompt_tokens=64 * CHUNKS)
            await self.world.prefilled(placement)
            await self.world.release(placement)
            repeated += bool(again)
            found += bool(again) and placement.chosen.most_chunks == CHUNKS
        return found / max(1, repeated)

    def _new(self) -> bytes:
        self.made += 1
        shared = f"system prompt {self.made % 3}".ljust(256 * 10, ".")  # so that paths branch
        self.paths.append(path(f"{shared} request {self.made}", CHUNKS))
        return self.paths[-1]


@asynccontextmanager
async def small(server: RedisServer, policy: str) -> AsyncIterator[tuple[Load, redis.Redis]]:
    """A load on an emptied server of 8 MB, and a plain client."""
    async with World.open(server.url) as world:
        with server.admin() as admin:
            admin.config_set("maxmemory", 8 * MIB)
            admin.config_set("maxmemory-policy", policy)
            admin.config_resetstat()
            try:
                yield Load(world), admin
            finally:
                admin.config_set("maxmemory", 0)


def trees(admin: redis.Redis) -> dict[str, int]:
    """Chunks by replica."""
    return {name: int(admin.zcard(KEYS.tree(name, "1"))) for name in REPLICAS}


def are_prefix_closed(admin: redis.Redis, paths: list[bytes]) -> bool:
    """Whether each tree holds a prefix of each path, and nothing behind a gap."""
    for name in REPLICAS:
        held = set(admin.zrange(KEYS.tree(name, "1"), 0, -1))
        for keys in paths:
            chunks = [keys[i : i + KEY_BYTES] in held for i in range(0, len(keys), KEY_BYTES)]
            if chunks != sorted(chunks, reverse=True):
                return False
    return True


async def tell(world: World) -> None:
    """Other writes that must succeed: queues, which wake a pool, and marks, which drain
    replicas."""
    await Queues(world.redis).report(POOL, "router", 1, 0, 100)
    assert (await Queues(world.redis).read(POOL)).requests == 1
    marks = Marks(world.redis, POOL)
    await marks.set(MarkKind.WARM, "new", lasts_ms=60_000, budget_tokens=10)
    [mark] = await marks.all()
    claimed = await marks.claim(mark, "router")
    assert claimed is not None and await marks.report(claimed, tokens=1)
    limits = Limits(requests=2, tokens=1_000)
    taken = await RateLimits(world.wire).take("tenant", limits, 400)
    await RateLimits(world.wire).settle("tenant", limits, 100)
    assert (taken.requests.left, taken.tokens.left) == (1, 600)
    for proposed in ("first", "second"):
        agreed = await UpstreamRecords(world.redis).agree(POOL, "engine", "model", proposed)
        assert agreed.incarnation == "first"


def fill(admin: redis.Redis, size: int) -> None:
    """Fill the memory like another application, until Redis refuses."""
    with pytest.raises(redis.OutOfMemoryError):
        while True:
            admin.rpush("another application's", b"x" * size)


@pytest.mark.parametrize("policy", POLICIES)
async def test_trees_make_room_before_redis_evicts_or_refuses_anything(
    server: RedisServer, policy: str
) -> None:
    async with small(server, policy) as (load, admin):
        hits = await load.run(900)
        assert load.made * CHUNKS * 55 > 6.4 * MIB  # bytes, more than trees may use
        assert admin.info("stats")["evicted_keys"] == 0
        assert admin.info("memory")["used_memory"] < 8 * MIB
        assert hits > 0.9
        assert {r.beat.replica for r in await load.world.registry.replicas(POOL)} == set(REPLICAS)
        assert await load.world.registry.pools() == [POOL]
        assert not any(c.outstanding for c in (await load.world.terms()).values())
        assert sum(trees(admin).values()) > 30_000
        assert are_prefix_closed(admin, load.paths)


async def test_trees_grow_again_when_there_is_memory(server: RedisServer) -> None:
    async with small(server, "noeviction") as (load, admin):
        await load.run(600)
        bounded = sum(trees(admin).values())
        admin.config_set("maxmemory", 64 * MIB)
        await load.run(600)
        assert sum(trees(admin).values()) > 1.5 * bounded


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
async def test_between_two_heartbeats_a_full_redis_takes_placements_and_keeps_its_bound(
    server: RedisServer, policy: str
) -> None:
    async with small(server, policy) as (load, admin):
        await load.run(500, beats=False)
        if policy == "noeviction":
            fill(admin, 1024)
        placement = await load.world.place(path("a new one", CHUNKS))
        assert admin.hlen(KEYS.leases[1]) == 1
        await load.world.release(placement)
        assert admin.info("memory")["used_memory"] < 1.05 * 8 * MIB
        assert admin.exists(POOLS, KEYS.replicas, KEYS.beats, KEYS.terms) == 4
        await tell(load.world)
        assert are_prefix_closed(admin, load.paths)
        for _ in range(10):
            await load.beat()
        assert admin.info("memory")["used_memory"] < 0.85 * 8 * MIB


async def test_where_others_fill_redis_trees_end_and_requests_go_on(server: RedisServer) -> None:
    async with small(server, "noeviction") as (load, admin):
        await load.run(300)
        for _ in range(40):
            fill(admin, 65536)
            await load.beat()
        assert sum(trees(admin).values()) < 4 * CHUNKS
        await load.run(100)
        assert await load.world.registry.pools() == [POOL]
        assert not any(c.outstanding for c in (await load.world.terms()).values())


_STEPS = st.lists(
    st.tuples(
        st.booleans(),  # heartbeats of all replicas, or else a prompt
        st.text("xy", min_size=1, max_size=40),  # one letter a chunk
        st.floats(0.7, 1.6),  # maxmemory relative to the used memory
        st.integers(0, 1_500),  # ms since the step before
    ),
    max_size=25,
)


@given(steps=_STEPS)
@settings(max_examples=examples(25))
async def test_however_short_memory_is_trees_stay_prefix_closed(
    server: RedisServer, steps: list[tuple[bool, str, float, int]]
) -> None:
    async with small(server, "noeviction") as (load, admin):
        beaten_ms = 0
        for is_beat, text, ratio, elapsed_ms in steps:
            load.world.now_ms += elapsed_ms
            admin.config_set("maxmemory", int(ratio * admin.info("memory")["used_memory"]))
            if is_beat or load.world.now_ms - beaten_ms > 1_000:
                await load.beat()
                beaten_ms = load.world.now_ms
            load.paths.append(chunk_keys(text.encode(), seed=0, chunk_bytes=1))
            placement = await load.world.place(load.paths[-1])
            await load.world.release(placement)
            assert are_prefix_closed(admin, load.paths)


async def test_only_what_may_be_lost_has_a_ttl(world: World) -> None:
    await world.beat("a", "b")
    await world.place(path("x", 3), tenant="t", tenant_share=0.5)
    await Marks(world.redis, POOL).set(MarkKind.DRAIN, "a", lasts_ms=60_000)
    kept = [POOLS, KEYS.replicas, KEYS.beats, KEYS.terms]
    for key in KEYS.leases:
        assert await world.redis.pttl(key) == -1, key
    for key in kept:  # left by a worker of the previous release
        assert await world.redis.pttl(key) == -1, key
        await world.redis.pexpire(key, RETENTION_MS)
    world.now_ms += ANNOUNCE_MS
    await world.beat("a", "b")
    for key in kept:
        assert await world.redis.pttl(key) == -1, key
    for key in (KEYS.marks, KEYS.tree("a", "1"), KEYS.tree("b", "1")):
        if await world.redis.exists(key):
            assert await world.redis.pttl(key) > 0, key


async def test_readers_remove_silent_replicas_and_pools_from_redis(world: World) -> None:
    await world.beat("a", "b")
    await world.registry.beat("other", replace(BEAT, replica="c"))
    world.now_ms += RETENTION_MS - 1
    await world.registry.beat("other", replace(BEAT, replica="c"))
    world.now_ms += 1
    assert await world.registry.pools() == ["other"]
    assert await world.redis.exists(KEYS.replicas, KEYS.beats, KEYS.terms) == 0
    world.now_ms += RETENTION_MS
    assert await world.registry.pools() == []
    assert await world.redis.keys() == []


async def test_silent_pools_are_not_listed_by_a_redis_that_takes_no_writes(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey()
    async with World.open(server.url) as world:
        await world.beat("a")
        await world.registry.beat("other", replace(BEAT, replica="c"))
        world.now_ms += RETENTION_MS
        await world.registry.beat("other", replace(BEAT, replica="c"))
        with server.admin() as admin:
            admin.replicaof("127.0.0.1", free_port())
        assert await world.registry.pools() == ["other"]
        assert await world.registry.replicas(POOL) == []
        assert len(await world.registry.replicas("other")) == 1


async def test_the_tree_of_a_replica_that_has_restarted_makes_room_at_once(world: World) -> None:
    await world.beat("a", "b")
    for name in ("a", "b"):
        await world.tree.touch(name, "1", path("x", 3), 100)
    await world.beat("a", "b")
    await world.beat("a", incarnation="2")
    assert not await world.redis.exists(KEYS.tree("a", "1"))
    assert await world.tree.size("b", "1") == 3
    await world.redis.hset(KEYS.beats, "b", "not JSON")
    await world.beat("b")
    assert await world.tree.size("b", "1") == 3


async def test_a_ledger_holds_nothing_that_its_tree_has_lost(world: World) -> None:
    for number in range(4):
        world.now_ms += 2_000
        await world.beat("a", capacity_tokens=64 * 100)
        await world.place(path(f"mine {number}", 10), tenant="t", tenant_share=0.5)
    await world.redis.zremrangebyrank(KEYS.tree("a", "1"), 0, 24)  # like make_room
    world.now_ms += 2_000
    await world.place(path("mine 3", 10), tenant="t", tenant_share=0.5)
    [ledger] = await world.redis.keys(f"{KEYS.ledger_prefix}*".replace("{", "[{]"))
    held = await world.redis.zrange(KEYS.tree("a", "1"), 0, -1)
    assert set(await world.redis.zrange(ledger, 0, -1)) == set(held)


async def test_what_waits_for_a_slow_follower_takes_no_room_from_trees(
    start_valkey: Callable[..., RedisServer],
) -> None:
    """Redis does not count it either."""
    config = "repl-diskless-sync-delay 0"
    server, follower = start_valkey(port=free_port(), config=config), start_valkey()
    async with World.open(server.url) as world:
        with server.admin() as admin, follower.admin() as followers:
            followers.replicaof("127.0.0.1", str(server.port))
            await until_async(
                lambda: followers.info("replication")["master_link_status"] == "up", "the link"
            )
            admin.config_set("maxmemory", 24 * MIB)
            await world.tree.touch("a", "1", path("a", CHUNKS), 10_000)
            follower.freeze()
            for _ in range(30):
                admin.set("another application's", b"x" * MIB)
            assert admin.info("memory")["mem_not_counted_for_evict"] > 8 * MIB
            await world.beat("a")
            assert trees(admin)["a"] == CHUNKS
            follower.thaw()
