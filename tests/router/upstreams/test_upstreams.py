"""Engines without heartbeats: probing, placing, learning from answers."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pando_router.core.promises import LIMIT
from tests.router.upstreams.foreign_engines import Engine, LlamaCpp, Sglang, Vllm
from tests.router.upstreams.upstreams_world import LONG, QUICK, beat_of, beats, homes
from tests.router.world import Replica, completion, serving, until


async def test_vllm_is_a_replica_with_its_adapters_and_its_kv_pool(valkey_url: str) -> None:
    async with Vllm() as engine:
        engine.adapters = ["sql", "poems"]
        async with serving(valkey_url, upstream=engine.url, **QUICK) as router:
            await router.ready(engine.name)
            beat = await beat_of(valkey_url, engine)
            assert (beat.model, beat.adapters) == ("m", ("poems", "sql"))
            assert (beat.capacity_tokens, beat.pinned_tokens) == (16_000, 4_000)
            assert (beat.running, beat.waiting, beat.max_request_tokens) == (3, 2, 8192)
            names = [card["id"] for card in (await router.get("/v1/models")).json["data"]]
            assert names == ["m", "poems", "sql"]
            answer = await router.post("/v1/completions", completion() | {"model": "sql"})
            assert (answer.status, answer.json["model"]) == (200, "sql")
            assert answer.replica == engine.name


def lora(at: float, running: str = "", waiting: str = "") -> str:
    labels = f'running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f'vllm:lora_requests_info{{max_lora="2",{labels}}} {at}\n'


async def test_vllms_adapters_have_their_places_from_its_metrics(valkey_url: str) -> None:
    async with Vllm() as engine:
        engine.adapters = ["sql", "poems", "chat"]
        engine.lora = lora(1.7e9, "chat") + lora(1.8e9, "sql", "poems")  # the first one is older
        async with serving(valkey_url, upstream=engine.url, **QUICK) as router:
            await router.ready(engine.name)

            async def places() -> dict[str, str]:
                beat = await beat_of(valkey_url, engine)
                return {each.name: each.place.value for each in beat.adapter_states}

            assert await places() == {"chat": "host", "poems": "waiting", "sql": "device"}
            beat = await beat_of(valkey_url, engine)
            slots = (beat.adapter_slots, beat.free_adapter_slots, beat.adapters_waiting)
            assert slots == (2, 1, 1)
            engine.lora = lora(1.9e9, "poems")

            async def moved() -> bool:
                return (await places())["poems"] == "device"

            await until(moved, "the next adapter running")
            assert await places() == {"chat": "host", "poems": "device", "sql": "device"}
            engine.lora = lora(2.0e9, "poems,chat")

            async def evicted() -> bool:
                return (await places())["chat"] == "device"

            await until(evicted, "the third adapter running")
            assert await places() == {"chat": "device", "poems": "device", "sql": "host"}


async def test_sglang_reports_its_kv_pool_and_its_places(valkey_url: str) -> None:
    async with (
        Sglang() as engine,
        serving(valkey_url, upstream=engine.url, **QUICK) as router,
    ):
        await router.ready(engine.name)
        beat = await beat_of(valkey_url, engine)
        assert (beat.capacity_tokens, beat.max_requests) == (20_480, 48)


async def test_requests_wait_while_llamacpp_loads_and_beyond_its_slots(valkey_url: str) -> None:
    async with LlamaCpp(decode_per_s=500) as engine:
        engine.health_status = 503
        async with serving(valkey_url, upstream=engine.url, **QUICK) as router:
            await router.ready(engine.name, state="starting")
            asked = [
                asyncio.create_task(router.post("/v1/completions", completion(f"{number}")))
                for number in range(5)
            ]

            async def all_wait() -> bool:
                return await router.metric('pando_router_queue_requests{pool="default"}') == 5

            await until(all_wait, "five requests waiting")
            assert not engine.received
            engine.health_status = 200
            assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 5
            assert engine.most_running == LlamaCpp.slots
            assert (await beat_of(valkey_url, engine)).max_request_tokens == 4096


async def test_what_is_wished_for_an_upstream_goes_before_what_it_says(valkey_url: str) -> None:
    async with LlamaCpp() as engine:
        wish = {
            "url": engine.url,
            "name": "first",
            "pool": "laptops",
            "endpoints": ["/v1/completions"],
            "max_requests": 1,
        }
        async with serving(valkey_url, upstream=[wish], **QUICK) as router:
            await router.ready("first")
            assert (await beats(valkey_url))["first"].max_requests == 1
            assert list((await router.get("/fleet")).json["pools"]) == ["laptops"]
            assert (await router.post("/v1/completions", completion())).replica == "first"
            refused = await router.post("/v1/embeddings", {"model": "m", "input": "x"})
            assert refused.json["error"]["code"] == "endpoint_not_found"


async def test_the_replica_that_holds_the_prefix_is_asked_from_every_router(
    valkey_url: str,
) -> None:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Vllm()) for _ in range(3)]
        urls = [engine.url for engine in engines]
        routers = [
            await stack.enter_async_context(serving(valkey_url, upstream=urls, **QUICK))
            for _ in range(3)
        ]
        for router in routers:
            await router.ready(*(engine.name for engine in engines))
        seen: dict[str, set[str]] = {}
        for number in range(60):
            for engine, beat in (await beats(valkey_url)).items():
                seen.setdefault(engine, set()).add(beat.incarnation)
            prompt = f"{number % 4} {LONG} {number}"
            answer = await routers[number % 3].post("/v1/completions", completion(prompt))
            assert answer.status == 200
        assert all(len(incarnations) == 1 for incarnations in seen.values()), seen
        holders: dict[str, set[str]] = {}
        for one in engines:
            for received in one.received:
                start = received.body[: received.body.index(LONG.encode())].decode()
                holders.setdefault(start, set()).add(one.name)
        assert len(holders) == 4
        assert all(len(names) == 1 for names in holders.values()), holders


async def test_what_is_no_engine_is_reported_and_harms_nothing(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Website(Engine):
        async def _models(self, request: Any) -> Any:
            from aiohttp import web

            return web.Response(text="<html>welcome</html>", content_type="text/html")

    async with (
        Website() as website,
        Vllm() as engine,
        serving(valkey_url, upstream=[website.url, engine.url], **QUICK) as router,
    ):
        await router.ready(engine.name)
        assert await homes(router, 4) == {engine.name}
        sample = (
            "pando_router_upstream_probes_total"
            f'{{outcome="failed",pool="default",upstream="{website.name}"}}'
        )

        async def is_counted() -> bool:
            return await router.metric(sample) > 2

        await until(is_counted, "failed probes")
    said = [one for one in caplog.records if getattr(one, "replica", "") == website.name]
    assert len(said) == 1, "once, not with each probe"
    assert "not JSON" in said[0].__dict__["error"]


async def test_an_upstreams_key_is_shown_to_it_alone(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "key").write_text("secret-of-a\n")
    async with Vllm("a", api_key="secret-of-a") as a, Vllm("b") as b, Replica(valkey_url, "own"):
        upstream = [{"url": a.url, "api_key_file": str(tmp_path / "key")}, b.url]
        async with serving(valkey_url, upstream=upstream, **QUICK) as router:
            await router.ready(a.name, b.name, "own")
            for model, engine in (("a", a), ("b", b)):
                asked = {"model": model, "prompt": "x"}
                answer = await router.post("/v1/completions", asked, authorization="Bearer mine")
                assert answer.status == 200
                shown = engine.received[0].headers["authorization"]
                assert shown == ("Bearer secret-of-a" if engine is a else "Bearer mine")
    assert "secret-of-a" not in "".join(f"{one.__dict__}" for one in caplog.records)


async def test_a_wrong_key_is_reported(valkey_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        Vllm(api_key="secret") as engine,
        serving(valkey_url, upstream=engine.url, **QUICK) as router,
    ):
        await until(lambda: "API key is wrong" in _errors(caplog), "a line about the key")
        assert (await router.post("/v1/completions", completion())).status == 503


def _errors(caplog: pytest.LogCaptureFixture) -> str:
    return "".join(str(one.__dict__.get("error", "")) for one in caplog.records)


async def test_rates_are_learned_from_answers_and_faster_engines_get_more(
    valkey_url: str,
) -> None:
    async with Vllm(prefill_per_s=8_000) as fast, Vllm(prefill_per_s=1_600) as slow:
        upstream = [fast.url, slow.url]
        async with serving(valkey_url, upstream=upstream, **QUICK) as router:
            await router.ready(fast.name, slow.name)

            async def ask(number: int) -> str:
                asked = completion(f"{number:05} " * 320, stream=True, max_tokens=12)
                asked["stream_options"] = {"include_usage": True}
                answer = await router.post("/v1/completions", asked)
                assert answer.status == 200
                return answer.replica

            asked = 0

            async def are_learned() -> bool:
                nonlocal asked
                asked += 6
                await asyncio.gather(*(ask(number) for number in range(asked - 6, asked)))
                now = await beats(valkey_url)
                return all(now[one.name].prefill_tokens_per_s for one in (fast, slow))

            await until(are_learned, "both rates")
            for wave in range(4):  # queued one behind another, which must not lower the rate
                await asyncio.gather(*(ask(1_000 + 10 * wave + one) for one in range(8)))
            now = await beats(valkey_url)
            rate = {one: now[one.name].prefill_tokens_per_s for one in (fast, slow)}
            assert 900 < rate[slow] < 2_600
            assert 1.5 * rate[slow] < rate[fast] < 12_000
            assert now[slow.name].decode_tokens_per_s > 0
            assert 3.9 < now[slow.name].bytes_per_token < 4.1
            before = len(fast.received), len(slow.received)
            await asyncio.gather(*(ask(2_000 + one) for one in range(18)))
            assert len(fast.received) - before[0] > 1.5 * (len(slow.received) - before[1])


async def test_the_tree_is_corrected_where_usage_says_that_an_engine_keeps_nothing(
    valkey_url: str,
) -> None:
    async with Vllm() as engine, serving(valkey_url, upstream=engine.url, **QUICK) as router:
        await router.ready(engine.name)
        asked = completion(LONG)
        await router.post("/v1/completions", asked)
        again = await router.post("/v1/completions", asked)
        assert int(again.headers["x-pando-matched-tokens"]) > 800
        assert await router.metric('pando_router_path_cuts_total{pool="default"}') == 0
        delivered = 'pando_router_delivered_cached_tokens_total{pool="default"}'
        assert await router.metric(delivered) > 800
        for _ in range(LIMIT):
            engine.forget()
            await router.post("/v1/completions", asked)

        async def is_cut() -> bool:
            return await router.metric('pando_router_path_cuts_total{pool="default"}') == 1

        await until(is_cut, "the path being cut")


async def test_an_engine_that_does_not_report_cached_tokens_is_believed(valkey_url: str) -> None:
    async with (
        Vllm(tells_cached=False) as engine,
        serving(valkey_url, upstream=engine.url, **QUICK) as router,
    ):
        await router.ready(engine.name)
        for _ in range(3):
            answer = await router.post("/v1/completions", completion(LONG))
        assert int(answer.headers["x-pando-matched-tokens"]) > 800
        assert await router.metric('pando_router_path_cuts_total{pool="default"}') == 0


async def test_own_workers_and_upstreams_serve_one_model_together(valkey_url: str) -> None:
    async with (
        Vllm() as engine,
        Replica(valkey_url, "own"),
        serving(valkey_url, upstream=engine.url, policy="round_robin", **QUICK) as router,
    ):
        await router.ready(engine.name, "own")
        assert await homes(router, 4) == {engine.name, "own"}
