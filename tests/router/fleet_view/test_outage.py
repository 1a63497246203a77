"""Redis is away, comes back, comes back empty, freezes: no request fails because of it."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from pando_fleet.registry.replica import ReplicaState
from tests.fleet.redis.front import Front
from tests.fleet.redis.pair import pair
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.upstreams.foreign_engines import Vllm
from tests.router.upstreams.upstreams_world import QUICK, beat_of, beats, states
from tests.router.world import (
    Replica,
    RouterClient,
    Stream,
    completion,
    fleet,
    redis_is,
    serving,
    status,
    until,
)

Start = Callable[..., RedisServer]


def redis_lines(caplog: pytest.LogCaptureFixture) -> dict[str, list[str]]:
    """What the router logged of Redis, by pool; pools whose state changes together share a line."""
    lines: dict[str, list[str]] = {}
    for record in caplog.records:
        if record.message.startswith("redis "):
            for pool in record.__dict__["pools"]:
                lines.setdefault(pool, []).append(record.message)
    return lines


async def keep_asking(router: RouterClient, stop: asyncio.Event, every_s: float = 0.0) -> list[int]:
    statuses: list[int] = []
    while not stop.is_set():
        answer = await router.post("/v1/completions", completion(f"{len(statuses)}"))
        statuses.append(answer.status)
        await asyncio.sleep(every_s)
    return statuses


async def test_requests_go_on_while_redis_dies_and_comes_back_empty(start_valkey: Start) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a", "b") as (router, [a, b]):
        stop = asyncio.Event()
        asking = asyncio.create_task(keep_asking(router, stop))
        server.stop()
        await redis_is(router, "away")
        assert await router.metric("pando_router_redis_up") == 0
        assert (await router.get("/readyz")).status == 200
        a.received.clear()
        b.received.clear()
        await until(lambda: a.received and b.received, "both replicas serving without Redis")
        server.start()
        await redis_is(router, "up")
        await router.ready("a", "b")
        sample = 'pando_router_placements_total{outcome="shared",policy="cache_aware"}'
        before = await router.metric(sample)

        async def placed_again() -> bool:
            return await router.metric(sample) > before

        await until(placed_again, "placements in Redis")
        stop.set()
        statuses = await asking
        assert len(statuses) > 10
        assert set(statuses) == {200}


async def test_requests_are_placed_at_the_new_master_that_has_the_name_now(
    start_server: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        pair(start_server) as servers,
        Replica(servers.url, "a"),
        Replica(servers.url, "b"),
        serving(servers.url) as router,
    ):
        await router.ready("a", "b")
        stop = asyncio.Event()
        asking = [asyncio.create_task(keep_asking(router, stop)) for _ in range(4)]
        sample = 'pando_router_placements_total{outcome="%s",policy="cache_aware"}'

        async def placed_more() -> None:
            before = await router.metric(sample % "shared")

            async def have_been() -> bool:
                return await router.metric(sample % "shared") > before + 50

            await until(have_been, "placements in Redis")

        await placed_more()
        servers.switch(old_follows=free_port())
        await placed_more()
        stop.set()
        for statuses in await asyncio.gather(*asking):
            assert set(statuses) == {200}
        assert await router.metric(sample % "fallback") == 0
        assert "redis is away" not in caplog.text
        await router.ready("a", "b")


async def test_a_router_without_requests_leaves_the_old_master_too(start_server: Start) -> None:
    async with (
        pair(start_server) as servers,
        Replica(servers.url, "a"),
        serving(servers.url) as router,
    ):
        await router.ready("a")
        servers.switch(old_follows=free_port())  # it has nothing new to read
        async with Replica(servers.url, "b"):
            await router.ready("a", "b")


async def test_a_lease_whose_end_redis_never_saw_is_counted(start_valkey: Start) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a") as (router, [a]):
        a.answer = stream = Stream()
        asking = asyncio.create_task(router.post("/v1/completions", completion()))
        await stream.started.wait()
        server.stop()
        await redis_is(router, "away")
        stream.end()
        assert (await asking).status == 200

        async def counted() -> bool:
            return await router.metric("pando_router_lease_write_failures_total") >= 1

        await until(counted, "the write being lost")


async def test_same_prompt_goes_to_the_same_replica_without_redis(start_valkey: Start) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a", "b") as (router, _):
        server.stop()
        await redis_is(router, "away")
        prompts = [f"{i} " * 200 for i in range(12)]
        first = [(await router.post("/v1/completions", completion(p))).replica for p in prompts]
        longer = [
            (await router.post("/v1/completions", completion(p + "more"))).replica for p in prompts
        ]
        assert longer == first
        assert set(first) == {"a", "b"}


async def test_dead_replica_is_passed_over_without_redis(start_valkey: Start) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a", "b") as (router, [a, _]):
        server.stop()
        await a.refuse()
        await redis_is(router, "away")
        for i in range(12):
            answer = await router.post("/v1/completions", completion(f"{i} " * 200))
            assert (answer.status, answer.replica) == (200, "b")


async def test_frozen_redis_costs_one_timeout_not_one_each(start_valkey: Start) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a", placement_timeout=0.5) as (router, _):
        server.freeze()
        try:
            loop = asyncio.get_running_loop()
            started = loop.time()
            for i in range(40):
                assert (await router.post("/v1/completions", completion(f"{i}"))).status == 200
            assert loop.time() - started < 15  # one timeout of 0.5 s, not 40
        finally:
            server.thaw()


async def test_a_redis_that_is_too_slow_for_placements_is_away_until_it_is_not(
    start_valkey: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = start_valkey(port=free_port())
    async with (
        Replica(server.url, "a"),
        Front(server.port) as front,
        serving(front.url, placement_timeout=0.5) as router,
    ):
        await router.ready("a")
        front.delay_s = 0.6
        for number in range(4):

            def looked(enough: int = front.received + 5) -> bool:
                return front.received >= enough

            assert (await router.post("/v1/completions", completion(f"{number}"))).status == 200
            await until(looked, "looks at Redis, and answers")
        assert (await router.get("/healthz")).json["redis"] == "away"
        front.delay_s = 0.0
        await redis_is(router, "up")
        said = redis_lines(caplog)
        once = ["redis answers", "redis is away", "redis answers"]
        assert said.pop("default") == once
        for lines in said.values():  # what is read less often may have found it in time
            assert lines in (once, once[:1])


async def test_flushed_registry_is_not_taken_for_a_dead_fleet(start_valkey: Start) -> None:
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a") as (router, [a]):
        a.pause()
        a.health = status(500)
        with server.admin() as admin:
            admin.flushall()
        await router.ready("a", state="lost")
        assert (await router.post("/v1/completions", completion())).status == 200
        sample = 'pando_router_placements_total{outcome="fallback",policy="cache_aware"}'
        assert await router.metric(sample) == 1


async def test_router_that_never_saw_redis_says_it_has_no_replicas_yet(
    start_valkey: Start,
) -> None:
    server = start_valkey(port=free_port())
    server.stop()
    async with serving(server.url) as router:
        assert (await router.get("/healthz")).json == {"status": "ok", "redis": "away"}
        assert (await router.get("/readyz")).status == 503
        answer = await router.post("/v1/completions", completion())
        assert (answer.status, answer.json["error"]["code"]) == (503, "no_replicas")
        server.start()
        async with Replica(server.url, "a"):
            await router.ready("a")
            assert (await router.get("/readyz")).status == 200
            assert (await router.post("/v1/completions", completion())).status == 200


async def test_a_router_is_ready_once_the_authority_of_redis_is_in_its_file(
    start_valkey: Start, tmp_path: Path
) -> None:
    server, ca, file = start_valkey(port=free_port()), trustme.CA(), tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(file))
    async with Front(server.port, ca) as front, Replica(server.url, "a"):
        url = f"rediss://127.0.0.1:{front.port}/0?ssl_ca_certs={file}"
        async with serving(url) as router:
            assert (await router.get("/readyz")).status == 503
            ca.cert_pem.write_to_path(str(file))
            await router.ready("a")
            assert (await router.get("/readyz")).status == 200
            await router.post("/v1/completions", completion())
            sample = 'pando_router_placements_total{outcome="shared",policy="cache_aware"}'
            assert await router.metric(sample) == 1


async def test_a_router_that_starts_without_redis_serves_the_upstreams_that_it_reaches(
    start_valkey: Start,
) -> None:
    server = start_valkey(port=free_port())
    server.stop()
    async with Vllm() as a, Vllm() as b, Vllm() as dead:
        urls = [a.url, b.url, dead.url]
        await dead.stop()
        async with serving(server.url, upstream=urls, **QUICK) as router:
            await router.ready(a.name, b.name)
            for path in ("/readyz", "/readyz?exclude=fleet"):
                assert (await router.get(path)).status == 200
            prompts = [completion(f"{number} " * 200) for number in range(12)]
            answers = [await router.post("/v1/completions", prompt) for prompt in prompts]
            assert {answer.status for answer in answers} == {200}
            assert {answer.replica for answer in answers} == {a.name, b.name}
            await redis_is(router, "away")
            await b.stop()

            async def is_left_out() -> bool:
                return not (await states(router))[b.name][1]

            await until(is_left_out, "the upstream that stopped being left out")
            answers = [await router.post("/v1/completions", prompt) for prompt in prompts]
            assert {(answer.status, answer.replica) for answer in answers} == {(200, a.name)}
            server.start()
            await redis_is(router, "up")

            async def is_known() -> bool:
                return a.name in await beats(server.url)

            await until(is_known, "a heartbeat in Redis")
            assert (await router.post("/v1/completions", completion())).status == 200


async def test_draining_replica_gets_nothing_new(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, _]):
        await a.say(state=ReplicaState.DRAINING)
        await router.ready("a", state="draining")
        replicas = {
            (await router.post("/v1/completions", completion(f"{i}"))).replica for i in range(8)
        }
        assert replicas == {"b"}


async def test_an_upstream_that_restarts_while_redis_refuses_comes_back_with_an_empty_cache(
    start_valkey: Start,
) -> None:
    server = start_valkey()
    async with Vllm() as engine, serving(server.url, upstream=engine.url, **QUICK) as router:
        await router.ready(engine.name)
        before = await beat_of(server.url, engine)

        async def probed(outcome: str) -> float:
            labels = f'{{outcome="{outcome}",pool="default",upstream="{engine.name}"}}'
            return await router.metric("pando_router_upstream_probes_total" + labels)

        with server.admin() as admin:
            admin.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        await redis_is(router, "away")
        await engine.stop()

        async def is_gone() -> bool:
            return await probed("gone") > 0

        await until(is_gone, "nobody listening")
        ready_before = await probed("ready")
        await engine.start()

        async def is_back() -> bool:
            return await probed("ready") > ready_before + 1

        await until(is_back, "the engine answering again")
        with server.admin() as admin:
            admin.execute_command("ACL", "SETUSER", "default", "+evalsha", "+eval")
        await redis_is(router, "up")

        async def is_new() -> bool:
            beat = (await beats(server.url)).get(engine.name)
            return beat is not None and beat.incarnation != before.incarnation

        await until(is_new, "another incarnation")


async def test_a_placement_that_redis_refuses_is_no_absent_redis(
    start_valkey: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_valkey()
    async with fleet(server.url, "a") as (router, _):
        with server.admin() as admin:
            admin.set("pando:{default}:leases", "of another kind")
            assert (await router.post("/v1/completions", completion())).status == 200
            assert await router.metric("pando_router_placement_errors_total") == 1
            assert (await router.get("/healthz")).json["redis"] == "up"
            assert "redis is away" not in caplog.text
            admin.delete("pando:{default}:leases")
        assert (await router.post("/v1/completions", completion())).status == 200
        sample = 'pando_router_placements_total{outcome="%s",policy="cache_aware"}'
        assert await router.metric(sample % "fallback") == 1
        assert await router.metric(sample % "shared") == 1
