"""Engines without heartbeats that hang, end, or come back changed."""

import asyncio

import pytest

from pando_fleet.registry.upstreams import Agreed, Sampled, UpstreamRecords
from tests.router.upstreams.foreign_engines import Vllm
from tests.router.upstreams.upstreams_world import (
    IMPATIENT,
    LONG,
    QUICK,
    beat_of,
    beats,
    becomes,
    homes,
    states,
)
from tests.router.world import completion, serving, until
from tests.waiting import PATIENCE_S


async def test_an_engine_that_goes_down_is_left_out_and_comes_back_with_an_empty_cache(
    valkey_url: str,
) -> None:
    async with (
        Vllm() as a,
        Vllm() as b,
        serving(valkey_url, upstream=[a.url, b.url], **QUICK) as router,
    ):
        await router.ready(a.name, b.name)
        before = await beat_of(valkey_url, a)
        await a.stop()
        assert await homes(router) == {b.name}  # at once, by a retry
        await becomes(router, a, healthy=False)
        await router.ready(a.name, state="lost")
        assert await homes(router) == {b.name}
        await a.start()
        await router.ready(a.name)
        await becomes(router, a, healthy=True)
        after = await beat_of(valkey_url, a)
        assert after.incarnation != before.incarnation
        assert a.name in await homes(router)


@pytest.mark.parametrize("another_router_is_first", [False, True])
async def test_an_engine_that_ends_while_a_heartbeat_of_it_is_under_way_is_left_out(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, another_router_is_first: bool
) -> None:
    """The heartbeat brings back the ended incarnation, or learns of one that is not listed."""
    agree, begun, goes_on = UpstreamRecords.agree, asyncio.Event(), asyncio.Event()

    async def late(
        self: UpstreamRecords,
        pool: str,
        name: str,
        identity: str,
        proposed: str,
        **learned: Sampled,
    ) -> Agreed:
        begun.set()
        await goes_on.wait()
        if another_router_is_first:
            await agree(self, pool, name, identity, "another", **learned)
        return await agree(self, pool, name, identity, proposed, **learned)

    async with Vllm() as a, serving(valkey_url, upstream=a.url, **QUICK) as router:
        await router.ready(a.name)
        before = await beat_of(valkey_url, a)
        with monkeypatch.context() as patch:
            patch.setattr(UpstreamRecords, "agree", late)
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
        await a.stop()
        await becomes(router, a, healthy=False)
        goes_on.set()
        labels = f'outcome="gone",pool="default",upstream="{a.name}"'
        probes = f"pando_router_upstream_probes_total{{{labels}}}"
        seen = await router.metric(probes)

        async def probed() -> bool:
            return await router.metric(probes) > seen + 3

        await until(probed, "it is probed again and again")
        assert (await states(router))[a.name][1] is False
        await a.start()
        await becomes(router, a, healthy=True)
        await router.ready(a.name)
        assert (await beat_of(valkey_url, a)).incarnation != before.incarnation


async def test_a_router_that_restarts_keeps_what_is_known_of_the_caches(valkey_url: str) -> None:
    async with Vllm() as a, Vllm() as b:
        upstream = [a.url, b.url]
        async with serving(valkey_url, upstream=upstream, **QUICK) as router:
            await router.ready(a.name, b.name)
            home = (await router.post("/v1/completions", completion(LONG))).replica
        async with serving(valkey_url, upstream=upstream, **QUICK) as router:
            await router.ready(a.name, b.name)
            answer = await router.post("/v1/completions", completion(LONG))
            assert answer.replica == home
            assert int(answer.headers["x-pando-matched-tokens"]) > 800


async def test_an_engine_with_another_model_is_another_replica(valkey_url: str) -> None:
    async with (
        Vllm("old") as engine,
        serving(valkey_url, upstream=engine.url, **QUICK) as router,
    ):
        await router.ready(engine.name)
        before = await beat_of(valkey_url, engine)
        engine.models = ["new"]

        async def is_known() -> bool:
            asked = {"model": "new", "prompt": LONG}
            return (await router.post("/v1/completions", asked)).status == 200

        await until(is_known, "the new model being served")
        gone = await router.post("/v1/completions", {"model": "old", "prompt": "x"})
        assert gone.json["error"]["code"] == "model_not_found"
        assert (await beat_of(valkey_url, engine)).incarnation != before.incarnation


async def test_an_engine_that_hangs_is_left_out_and_keeps_its_cache(valkey_url: str) -> None:
    async with (
        Vllm() as a,
        Vllm() as b,
        serving(valkey_url, upstream=[a.url, b.url], **IMPATIENT) as router,
    ):
        await router.ready(a.name, b.name)
        before = await beat_of(valkey_url, a)
        a.hangs.set()
        await becomes(router, a, healthy=False)
        assert await homes(router) == {b.name}
        a.hangs.clear()
        await becomes(router, a, healthy=True)
        await router.ready(a.name)
        assert (await beat_of(valkey_url, a)).incarnation == before.incarnation
        labels = f'{{outcome="silent",pool="default",upstream="{a.name}"}}'
        assert await router.metric("pando_router_upstream_probes_total" + labels) >= 2


async def test_an_engine_that_hung_and_was_restarted_has_an_empty_cache(valkey_url: str) -> None:
    async with Vllm() as engine, serving(valkey_url, upstream=engine.url, **IMPATIENT) as router:
        await router.ready(engine.name)
        before = await beat_of(valkey_url, engine)
        engine.hangs.set()
        await becomes(router, engine, healthy=False)
        await engine.stop()
        engine.hangs.clear()
        gone = f'{{outcome="gone",pool="default",upstream="{engine.name}"}}'

        async def is_seen() -> bool:
            return await router.metric("pando_router_upstream_probes_total" + gone) > 0

        await until(is_seen, "nobody listening")
        await engine.start()
        await becomes(router, engine, healthy=True)
        await router.ready(engine.name)
        assert (await beat_of(valkey_url, engine)).incarnation != before.incarnation


async def test_so_has_one_that_was_restarted_while_a_router_started(valkey_url: str) -> None:
    async with Vllm() as engine:
        async with serving(valkey_url, upstream=engine.url, **QUICK) as router:
            await router.ready(engine.name)
            before = await beat_of(valkey_url, engine)
        await engine.stop()
        async with serving(valkey_url, upstream=engine.url, **QUICK) as router:
            gone = f'{{outcome="gone",pool="default",upstream="{engine.name}"}}'

            async def is_seen() -> bool:
                return await router.metric("pando_router_upstream_probes_total" + gone) > 0

            await until(is_seen, "nobody listening")
            await engine.start()

            async def is_new() -> bool:
                beat = (await beats(valkey_url)).get(engine.name)
                return beat is not None and beat.incarnation != before.incarnation

            await until(is_new, "another incarnation")
