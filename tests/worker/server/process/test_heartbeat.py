"""A worker's heartbeats, read by the fleet's registry from a real server."""

import asyncio
import dataclasses
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from pando_fleet.redis.client import connect
from pando_fleet.registry.adapter import AdapterPlace
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.endpoint import JSON
from pando_worker.heartbeats import with_report
from pando_worker.messages import Ready
from pando_worker.server.text.prompt_meter import PromptMeter
from pando_worker.stats import Stats
from tests.fleet.redis.pair import pair
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.worker.server.process.tiny_adapters import TinyAdapter
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess, until
from tests.worker.server.stand_in import CONTEXT, HOT_EVICTED, LONG_LOAD, WAITING_OUTPUT, Trick

pytestmark = pytest.mark.e2e


class Fleet:
    """The registry's view of the one worker."""

    def __init__(self, registry: Registry, pool: str) -> None:
        self._registry = registry
        self._pool = pool
        self.beat: Heartbeat | None = None

    async def shows(self, condition: Callable[[Heartbeat], bool]) -> None:
        async def shown() -> bool:
            await self.read()
            return self.beat is not None and condition(self.beat)

        await until(shown)

    async def urls(self) -> dict[str, str]:
        replicas = await self._registry.replicas(self._pool)
        return {replica.beat.replica: replica.beat.url for replica in replicas}

    async def read(self) -> None:
        replicas = await self._registry.replicas(self._pool)
        self.beat = replicas[0].beat if replicas else None


@asynccontextmanager
async def fleet_at(url: str, pool: str = "p") -> AsyncIterator[Fleet]:
    redis = connect(url)
    try:
        yield Fleet(Registry(redis), pool)
    finally:
        await redis.aclose()


async def test_fleet_sees_a_worker_from_ready_to_leave(valkey_url: str) -> None:
    async with fleet_at(valkey_url) as fleet:
        with WorkerProcess.start(redis=valkey_url, pool="p", replica="one") as worker:
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            beat = fleet.beat
            assert beat is not None
            assert (beat.replica, beat.url, beat.model) == ("one", worker.url, MODEL_NAME)
            assert (beat.capacity_tokens, beat.max_request_tokens) == (4096, CONTEXT)
            await fleet.shows(lambda beat: beat.waiting_output_tokens == WAITING_OUTPUT)
            await fleet.shows(lambda beat: beat.hot_evicted_tokens_total == HOT_EVICTED)
            async with aiohttp.ClientSession(worker.url) as http:
                for path, endpoint in ENDPOINTS.items():
                    async with http.post(path, json={}) as answer:
                        if endpoint.media == JSON and not path.endswith("/classify"):
                            assert (answer.status != 404) == (path in beat.endpoints), path
                        else:  # of sound, which this model does not hear, or of classes
                            assert (answer.status, path in beat.endpoints) == (400, False)

            async with aiohttp.ClientSession(worker.url) as http:
                text = "one two three four five six " * 8
                sampling = {"seed": Trick.SLOW, "max_new_tokens": 30}
                body = {"text": text, "stream": True, "sampling_params": sampling}
                async with http.post("/generate", json=body) as answer:
                    await fleet.shows(lambda beat: beat.running == 1 and beat.pinned_tokens > 0)
                    worker.signal(signal.SIGTERM)
                    await fleet.shows(lambda beat: beat.state is ReplicaState.DRAINING)
                    tokens = int(answer.headers["x-pando-prompt-tokens"])
                    await answer.read()
            assert fleet.beat is not None
            assert fleet.beat.bytes_per_token == len(text) / tokens
            assert await worker.exit_code() == 0
        await fleet.read()
        assert fleet.beat is None, "it left at its end"


async def test_a_loading_worker_shows_as_starting(valkey_url: str) -> None:
    async with fleet_at(valkey_url, pool=LONG_LOAD) as fleet:
        with WorkerProcess.start(ready=False, redis=valkey_url, pool=LONG_LOAD):
            await fleet.shows(lambda beat: beat.state is ReplicaState.STARTING)
            await fleet.shows(lambda beat: (beat.stage, beat.stage_done) == ("weights", 0.5))


async def test_a_second_model_in_a_pool_is_said(valkey_url: str) -> None:
    async with fleet_at(valkey_url) as fleet:
        with WorkerProcess.start(redis=valkey_url, pool="p", replica="one"):
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            with WorkerProcess.start(
                redis=valkey_url, pool="p", replica="two", served_model_name="another"
            ) as second:
                await asyncio.to_thread(
                    second.logged,
                    f"pool 'p' also has 'one', which serves '{MODEL_NAME}' and not 'another'",
                )


async def test_two_living_workers_of_one_name_get_two_names_and_both_say_so(
    valkey_url: str,
) -> None:
    async with fleet_at(valkey_url) as fleet:
        with WorkerProcess.start(redis=valkey_url, pool="p", replica="one") as first:
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            with WorkerProcess.start(redis=valkey_url, pool="p", replica="one") as second:
                found = await asyncio.to_thread(
                    second.logged,
                    r"'one' is the name of another .* at (\S+), so this worker is '(\S+)'",
                )
                assert found[1] == first.url
                told = await asyncio.to_thread(
                    first.logged, r"another worker, at (\S+), uses this worker's name, 'one'"
                )
                assert told[1] == second.url

                async def both() -> bool:
                    return await fleet.urls() == {"one": first.url, found[2]: second.url}

                await until(both)
                second.signal(signal.SIGTERM)
                assert await second.exit_code() == 0
            assert await fleet.urls() == {"one": first.url}


async def test_a_worker_takes_the_name_of_one_that_crashed(valkey_url: str) -> None:
    async with fleet_at(valkey_url) as fleet:
        with WorkerProcess.start(redis=valkey_url, pool="p", replica="one") as crashed:
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            crashed.process.kill()
            await crashed.exit_code()
        with WorkerProcess.start(redis=valkey_url, pool="p", replica="one") as next_one:

            async def taken_over() -> bool:
                return await fleet.urls() == {"one": next_one.url}

            await until(taken_over)


async def test_redis_away_disturbs_nothing_and_is_said_once(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey(port=free_port())
    async with fleet_at(server.url) as fleet:
        with WorkerProcess.start(redis=server.url, pool="p") as worker:
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            server.stop()
            await asyncio.to_thread(worker.logged, "heartbeats do not reach the fleet")
            async with aiohttp.ClientSession(worker.url) as http:
                body = {"model": MODEL_NAME, "prompt": "on my own", "max_tokens": 2}
                for _ in range(20):
                    async with http.post("/v1/completions", json=body) as answer:
                        assert answer.status == 200
            server.start()
            await asyncio.to_thread(worker.logged, "heartbeats reach the fleet again")
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            assert worker.log.count("heartbeats do not reach") == 1


async def test_a_worker_s_heartbeats_follow_the_name_to_a_new_master(
    start_server: Callable[..., RedisServer],
) -> None:
    async with pair(start_server) as servers:
        with WorkerProcess.start(redis=servers.url, pool="p") as worker:
            async with fleet_at(
                servers.new.url
            ) as fleet:  # which replicates the old one until then
                await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
                failed = worker.log.count("heartbeats do not reach")
                servers.switch(old_follows=free_port())
                with servers.new.admin() as admin:
                    admin.flushall()
                await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            assert worker.log.count("heartbeats do not reach") == failed


def test_a_heartbeat_carries_what_the_scheduler_says() -> None:
    numbers = {name: 1000 + i for i, name in enumerate(Stats.__struct_fields__)}
    stats = msgspec.convert(numbers | {"batch_sizes": []}, Stats)
    ready = Ready(capacity_tokens=1, max_running_requests=2, max_request_tokens=3, page_size=4)
    silent = Heartbeat(
        replica="r", incarnation="i", url="", model="m", state=ReplicaState.READY, max_requests=5
    )
    beat = with_report(with_report(silent, ready), stats)
    carried = {
        "capacity_tokens",
        "pinned_tokens",
        "cached_tokens",
        "running",
        "waiting",
        "waiting_tokens",
        "waiting_output_tokens",
        "begun_tokens",
        "begun_context",
        "prefill_tokens_per_s",
        "prefill_context_per_s",
        "doubling_context",
        "decode_tokens_per_s",
        "release_tokens_per_s",
        "prompt_tokens_total",
        "cached_prompt_tokens_total",
        "output_tokens_total",
        "prompts_total",
        "computed_squares_total",
        "decoded_tokens_total",
        "decode_seconds_total",
        "hot_evicted_tokens_total",
        "source_hits_total",
        "source_misses_total",
        "adapter_slots",
        "free_adapter_slots",
        "adapters_loading",
        "adapters_waiting",
        "adapter_idle_s",
        "adapter_load_s",
        "adapter_read_s",
        "adapter_slot_wait_s",
    }
    said = {name: numbers[name] for name in carried} | {"max_request_tokens": 3}
    assert beat == dataclasses.replace(silent, **said)  # type: ignore[arg-type]


def test_bytes_per_token_follows_the_prompts_weighted_by_their_tokens() -> None:
    meter = PromptMeter()
    assert meter.bytes_per_token == 4.0
    meter.observe(30, 10)
    assert meter.bytes_per_token == 3.0
    meter.observe(500_000, 100_000)
    assert meter.bytes_per_token == 5.0
    meter.observe(2, 1)
    assert 4.99 < meter.bytes_per_token < 5.0


async def test_heartbeats_say_where_each_adapter_is(valkey_url: str, tmp_path: Path) -> None:
    paths = {name: TinyAdapter(tmp_path / name, seed, 8).path for seed, name in enumerate("abc")}
    async with fleet_at(valkey_url, "adapters") as fleet:
        with WorkerProcess.start(
            stand_in=False,
            threads=1,
            redis=valkey_url,
            pool="adapters",
            max_loras=2,
            lora_modules=[f"{name}={path}" for name, path in paths.items()],
        ) as worker:
            await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
            assert fleet.beat is not None
            assert fleet.beat.adapters == ("a", "b", "c"), "ready means that all are checked"
            assert len({each.identity for each in fleet.beat.adapter_states}) == 3
            async with worker.client() as client:
                for name in "abc":
                    await client.completions.create(model=name, prompt="x", max_tokens=1)
            device, host = AdapterPlace.DEVICE, AdapterPlace.HOST
            await fleet.shows(
                lambda beat: [each.place for each in beat.adapter_states] == [host, device, device]
            )
            await fleet.shows(lambda beat: beat.adapter_load_s > 0 and beat.free_adapter_slots == 2)
            assert (fleet.beat.adapter_slots, fleet.beat.adapters_waiting) == (2, 0)
            async with aiohttp.ClientSession(worker.url) as http:
                path = str(paths["a"])
                body = {"lora_name": "b", "lora_path": path, "load_inplace": True, "pin": True}
                async with http.post("/v1/load_lora_adapter", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                await fleet.shows(lambda beat: beat.adapter_states[1].pinned)
                a, b, _ = fleet.beat.adapter_states
                assert (a.identity, a.place) == (b.identity, device)
                async with http.post("/v1/unload_lora_adapter", json=body) as answer:
                    assert answer.status == 200
                await fleet.shows(lambda beat: beat.adapters == ("a", "c"))
