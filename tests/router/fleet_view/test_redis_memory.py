"""A router's advice on a Redis with unsuitable memory or policy."""

from collections.abc import Callable

import pytest

from pando_fleet.redis.memory import CHUNK_BYTES_MOST, Memory
from pando_router.fleet_view.redis_memory import advise
from tests.fleet.redis_server import RedisServer
from tests.router.world import Replica, serving, until

MIB = 1 << 20


@pytest.mark.parametrize(
    ("servers", "needed_mib", "about"),
    [
        ([Memory(MIB, 0, "noeviction")], 1_000, set()),
        ([Memory(MIB, 100 * MIB, "noeviction")], 79, set()),
        ([Memory(MIB, 100 * MIB, "noeviction")], 81, {"size"}),
        ([Memory(MIB, 100 * MIB, "allkeys-lfu")], 1, {"policy"}),
        ([Memory(MIB, 0, "allkeys-lru")], 1, set()),  # evicts nothing
        (
            [Memory(MIB, 50 * MIB, "volatile-ttl"), Memory(0, 60 * MIB, "allkeys-lru")],
            85,
            {"policy"},
        ),
    ],
)
def test_advice_is_given_where_policy_or_size_are_unfit(
    servers: list[Memory], needed_mib: int, about: set[str]
) -> None:
    assert advise(servers, needed_mib * MIB).keys() == about


async def test_an_unfit_redis_is_reported_by_log_health_and_metrics(
    start_valkey: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_valkey("--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru")
    tokens = 10_000_000
    async with Replica(server.url, "a", capacity_tokens=tokens), serving(server.url) as router:
        await router.ready("a")

        async def advice() -> bool:
            health = (await router.get("/healthz")).json
            return len(health.get("redis_advice", ())) == 2

        await until(advice, "two pieces of advice")
        said = [r.__dict__["advice"] for r in caplog.records if "advice" in r.__dict__]
        assert len(said) == 2
        assert "set volatile-lru or noeviction" in said[0] and "Set maxmemory to 24" in said[1]
        trees = await router.metric('pando_router_redis_memory_bytes{kind="trees"}')
        assert trees == tokens * 4 // 256 * CHUNK_BYTES_MOST
        assert await router.metric('pando_router_redis_memory_bytes{kind="max"}') == 8 * MIB
        assert 0 < await router.metric('pando_router_redis_memory_bytes{kind="used"}') < 8 * MIB


async def test_a_user_without_permission_to_read_the_memory_is_reported(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey()
    with server.admin() as admin:
        admin.acl_setuser(
            "default", enabled=True, nopass=True, keys="*", commands=["+@all", "-info"]
        )
    async with Replica(server.url, "a"), serving(server.url) as router:
        await router.ready("a")  # its heartbeats get through

        async def advice() -> bool:
            return "permit INFO" in str((await router.get("/healthz")).json.get("redis_advice"))

        await until(advice, "advice to permit INFO")
