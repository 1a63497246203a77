"""The minimal Redis permissions listed in docs/redis.md: enough for a fleet, and all needed."""

import re
from collections.abc import Callable
from pathlib import Path

import redis

import pando_fleet
from pando_fleet.placement.keeper import Keeper
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.placement.worth import Worths
from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.homes import Homes
from pando_fleet.records.limits import Limits
from pando_fleet.records.loads import Loads
from pando_fleet.records.marks import MarkKind, Marks
from pando_fleet.records.queues import Queues
from pando_fleet.records.rate_limits import RateLimits
from pando_fleet.redis.client import RedisClient, connect
from pando_fleet.redis.memory import read_memory
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.upstreams import UpstreamRecords
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import POOL, World, path
from tests.ports import free_port
from tests.router.world import completion, fleet
from tests.waiting import until

PAGE = Path(__file__).parents[3] / "docs" / "redis.md"
USER = re.compile(r"^(user pando on .*?)^```$", re.MULTILINE | re.DOTALL)
ONLY_IN_A_CLUSTER = {"cluster|slots", "cluster|shards", "command"}
NOT_NEEDED = {"client|setinfo", "client"}  # redis-py reports its name if permitted


def rules() -> list[str]:
    """The page's rules for the user, without name and password."""
    (found,) = USER.findall(PAGE.read_text())
    return [rule for rule in found.replace("\\", " ").split()[3:] if not rule.startswith(">")]


def allowed() -> set[str]:
    return {rule[1:] for rule in rules() if rule.startswith("+")}


def in_scripts() -> set[str]:
    """Commands that the Lua files call, even if no test reaches them."""
    lua = Path(pando_fleet.__file__).parent / "lua"
    text = "".join(file.read_text() for file in lua.rglob("*.lua"))
    return {command.lower() for command in re.findall(r"redis\.p?call\('([A-Z]+)'", text)}


def restrict(admin: redis.Redis) -> None:
    admin.execute_command("ACL", "SETUSER", "pando", "on", ">secret", *rules())  # type: ignore[no-untyped-call]
    admin.config_resetstat()


def denied(admin: redis.Redis) -> set[str]:
    return {str(entry["object"]) for entry in admin.acl_log()} - NOT_NEEDED


def used(admin: redis.Redis) -> set[str]:
    stats = admin.info("commandstats")
    ran = (name for name, each in stats.items() if each["calls"] > each["rejected_calls"])
    return {name.removeprefix("cmdstat_") for name in ran} - {"config|resetstat", "acl|log"}


async def whole_fleet(url: str) -> None:
    """All calls of routers, workers and the operator to Redis."""
    redis = connect(url)
    world = World(redis)
    await world.beat("a", "b")
    placement = await world.place(path("x", 5), tenant="t", tenant_share=0.01)
    await world.prefilled(placement)
    world.placer.cut(placement, path("x", 5), 2)
    await world.renew(60_000)
    await Keeper(world.wire, world.placer, POOL, "r1", world.clock).look(1.0, 60_000)
    await world.terms()
    await world.release(placement)
    marks = Marks(redis, POOL)
    await marks.set(MarkKind.WARM, "a", lasts_ms=60_000, budget_tokens=10)
    [mark] = await marks.all()
    assert (claimed := await marks.claim(mark, "r")) is not None
    assert await marks.report(claimed, tokens=1)
    await marks.clear(MarkKind.WARM, "a")
    await Queues(redis).report(POOL, "r", 1, 1, 1)
    await Queues(redis).read(POOL)
    await Loads(redis, POOL).read()
    await operator_rows(redis)
    await Homes(redis).remember(POOL, ["resp_1"], "1")
    await Homes(redis).find(POOL, "resp_1")
    wire = Wire(redis)
    limits = Limits(requests=10, tokens=1_000)
    await RateLimits(wire).take("t", limits, 10)
    await RateLimits(wire).settle("t", limits, 5)
    await UpstreamRecords(redis).agree(POOL, "e", "m", "1")
    await UpstreamRecords(redis).ended(POOL, "e", "1")
    registry = Registry(redis, world.clock)
    await Worths(redis, POOL, world.clock).read(await registry.replicas(POOL))
    await PrefixTree(redis, POOL).size("a", "1")
    await read_memory(redis)
    await registry.leave(POOL, "a", "1")
    world.now_ms += 60_000
    assert await registry.pools() == []
    await wire.aclose()
    await world.wire.aclose()
    await redis.aclose()


async def operator_rows(redis: RedisClient) -> None:
    await ExpectedPools(redis).put(POOL, ["m"])
    await ExpectedPools(redis).owners()
    await ExpectedPools(redis).remove(POOL)
    await PastDecisions(redis).put(POOL, [])


async def test_a_fleet_runs_with_the_rights_that_the_page_lists_and_needs_each(
    start_server: Callable[..., RedisServer],
) -> None:
    server = start_server(port=free_port())
    with server.admin() as admin:
        restrict(admin)
        url = f"redis://pando:secret@127.0.0.1:{server.port}/1"
        await whole_fleet(url)
        async with fleet(url, "a") as (router, _):
            assert (await router.post("/v1/completions", completion("hello"))).status == 200
        assert denied(admin) == set()
        needed = used(admin) | in_scripts()
        for rule in allowed() - ONLY_IN_A_CLUSTER:
            assert rule in needed or rule.partition("|")[0] in needed, rule  # as Redis 6.2 counts
        assert in_scripts() - allowed() == set()


async def test_a_cluster_s_nodes_want_the_same_rights_and_those_to_find_each_other(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey(
        "--cluster-enabled", "yes", port=free_port(), config=f"cluster-port {free_port()}"
    )
    with server.admin() as admin:
        admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(
            lambda: b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO"),
            "the cluster is whole",
        )
        restrict(admin)
        await whole_fleet(f"redis+cluster://pando:secret@127.0.0.1:{server.port}")
        assert denied(admin) == set()
