"""The settings file is applied while the router runs: completely or not at all, without a
restart."""

import asyncio
import logging
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from pando.settings.load import Sources
from pando_router.configuration.live import FixedSettingError, Live
from pando_router.configuration.reloader import Reloader, SettingsSource
from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings
from pando_router.telemetry.metrics import Metrics
from tests.router.configuration.reloading import command, put, reloading
from tests.router.process.router_process import is_ready
from tests.router.upstreams.foreign_engines import Vllm
from tests.router.world import (
    Replica,
    RouterClient,
    completion,
    never,
    status,
    until,
)
from tests.waiting import PATIENCE_S, command_of, read_each

FAILURES = "pando_router_settings_reload_failures_total"
LOADED = "pando_router_settings_loaded_timestamp_seconds"


async def test_other_settings_hold_for_the_next_request(valkey_url: str, tmp_path: Path) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b"),
        reloading(valkey_url, tmp_path / "router.yaml", policy="prefix_hash") as world,
    ):
        router = world.router
        await router.ready("a", "b")
        ask = completion("x" * 2_000)
        unknown = await router.post("/v1/completions", ask | {"model": "smart"})
        assert unknown.status == 404
        assert len({(await router.post("/v1/completions", ask)).replica for _ in range(6)}) == 1

        await world.write(
            aliases={"smart": "m"},
            policy="round_robin",
            allow_policy_header=True,
            max_body_bytes=5_000,
            max_requests=100,
            first_byte_timeout=2.0,
            keep_alive_timeout=1.5,
        )
        assert (await router.post("/v1/completions", ask | {"model": "smart"})).status == 200
        assert {(await router.post("/v1/completions", ask)).replica for _ in range(6)} == {"a", "b"}
        chosen = [
            (await router.post("/v1/completions", ask, **{"x-pando-policy": "prefix_hash"})).replica
            for _ in range(6)
        ]
        assert len(set(chosen)) == 1
        assert (await router.post("/v1/completions", completion("x" * 6_000))).status == 413
        a.answer = never
        answers = [(await router.post("/v1/completions", ask)).status for _ in range(2)]
        assert sorted(answers) == [200, 504]


async def test_a_broken_file_changes_nothing_and_is_reported_once(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "router.yaml"
    async with (
        Replica(valkey_url, "a"),
        reloading(valkey_url, file, aliases={"smart": "m"}) as world,
    ):
        router = world.router
        await router.ready("a")
        loaded = await router.metric(LOADED)
        broken = ("policy: best", "aliases: [", "max_triez: 3", "max_tries: 0", "- 1", "\x00")
        for count, text in enumerate(broken, 1):
            caplog.clear()
            put(file, text)
            await world.reloader.look()
            await world.reloader.look()
            assert await router.metric(FAILURES) == count
            (line,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
            assert "stay in effect" in line.getMessage()
            answer = await router.post("/v1/completions", completion() | {"model": "smart"})
            assert answer.status == 200
        assert await router.metric(LOADED) == loaded
        file.unlink()
        await world.reloader.look()
        assert await router.metric(FAILURES) == len(broken) + 1
        await world.write(aliases={"clever": "m"})
        answer = await router.post("/v1/completions", completion() | {"model": "clever"})
        assert answer.status == 200
        assert await router.metric(LOADED) > loaded


async def test_what_needs_a_restart_is_refused_by_name_with_all_else_in_the_file(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Replica(valkey_url, "a"),
        reloading(valkey_url, tmp_path / "router.yaml") as world,
    ):
        await world.router.ready("a")
        await world.write(host="0.0.0.0", processes=2, aliases={"smart": "m"})
        (line,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert line.__dict__["error"] == "host, processes cannot change without a restart"
        answer = await world.router.post("/v1/completions", completion() | {"model": "smart"})
        assert answer.status == 404


async def test_flags_go_before_the_file_as_at_the_start(valkey_url: str, tmp_path: Path) -> None:
    file = tmp_path / "router.yaml"
    async with (
        Replica(valkey_url, "a"),
        reloading(valkey_url, file, flags={"max_body_bytes": 1_000}) as world,
    ):
        await world.router.ready("a")
        await world.write(max_body_bytes=100_000)
        assert (await world.router.post("/v1/completions", completion("x" * 2_000))).status == 413


async def test_upstreams_come_and_go_with_the_file(valkey_url: str, tmp_path: Path) -> None:
    async with (
        Vllm() as a,
        Vllm() as b,
        reloading(
            valkey_url, tmp_path / "router.yaml", upstream=[a.url], upstream_interval=0.05
        ) as world,
    ):
        router = world.router
        await router.ready(a.name)
        await world.write(upstream=[a.url, b.url], upstream_interval=0.05, policy="round_robin")
        await router.ready(a.name, b.name)
        ask = completion()
        both = {(await router.post("/v1/completions", ask)).replica for _ in range(4)}
        assert both == {a.name, b.name}
        await world.write(upstream=[b.url], upstream_interval=0.05, policy="round_robin")
        await router.ready(a.name, state="draining")
        probed = a.probed
        assert {(await router.post("/v1/completions", ask)).replica for _ in range(4)} == {b.name}
        assert a.probed == probed


async def test_a_key_file_that_changes_is_read_too(valkey_url: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("one")
    file = tmp_path / "router.yaml"
    async with Vllm(api_key="two") as engine:
        upstream = [{"url": engine.url, "api_key_file": str(key)}]
        async with reloading(valkey_url, file, upstream=upstream, upstream_interval=0.05) as world:
            await until(lambda: engine.probed > 2, "probes with the wrong key")
            assert not (await world.router.get("/fleet")).json["pools"]
            put(key, "two")
            await world.reloader.look()
            await world.router.ready(engine.name)


async def test_health_checks_begin_and_end_with_their_settings(
    valkey_url: str, tmp_path: Path
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        reloading(valkey_url, tmp_path / "router.yaml", health_interval=0) as world,
    ):
        await world.router.ready("a")
        a.health = status(500)

        async def is_healthy(wanted: bool) -> bool:
            pools = (await world.router.get("/fleet")).json["pools"]
            return bool(pools["default"][0]["healthy"]) is wanted

        assert await is_healthy(True)
        await world.write(health_interval=0.05, unhealthy_after=1)
        await until(lambda: is_healthy(False), "the check failing")
        await world.write(health_interval=0)
        await until(lambda: is_healthy(True), "no check")


async def test_a_configmap_that_kubernetes_swaps_has_changed(tmp_path: Path) -> None:
    # In its mount, the file is a link into a folder that is a link to one named by a time.
    for version, alias in (("v1", "one"), ("v2", "two")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "router.yaml").write_text(f"aliases: {{{alias}: m}}\n")
    (tmp_path / "..data").symlink_to("v1")
    file = tmp_path / "router.yaml"
    file.symlink_to("..data/router.yaml")
    sources = Sources(RouterSettings, {}, file)
    live = Live(sources.load())
    reloader = Reloader(SettingsSource(file, sources.load), live, Metrics())
    await reloader.look()
    assert live.settings.aliases == {"one": "m"}
    (tmp_path / "..tmp").symlink_to("v2")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    await reloader.look()
    assert live.settings.aliases == {"two": "m"}


async def test_every_setting_is_either_fixed_or_live() -> None:
    live = Live(RouterSettings())
    fixed = needing_restart(RouterSettings)
    for name in fixed:
        other = RouterSettings().model_copy(update={name: "something else"})
        with pytest.raises(FixedSettingError, match=name):
            live.adopt(other)
    for name in set(RouterSettings.model_fields) - fixed:
        other = live.settings.model_copy(update={name: ("other", name)})
        assert live.adopt(other) == [name]
        assert getattr(live.settings, name) == ("other", name)


async def knows(router: RouterClient, alias: str) -> bool:
    asked = completion() | {"model": alias}
    return (await router.post("/v1/completions", asked)).status == 200


@pytest.mark.e2e
async def test_a_process_sees_the_file_change_and_hears_sighup(
    valkey_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "router.yaml"
    async with Replica(valkey_url, "a"), command(valkey_url, file) as (child, router):
        put(file, "aliases: {zero: m}")
        await until(lambda: knows(router, "zero"), "a file that changed")
        child.send_signal(signal.SIGHUP)
        assert child.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while b'"changed": []' not in await child.stderr.readline():
                pass
        child.terminate()
        assert await child.wait() == 0


@pytest.mark.e2e
async def test_all_processes_on_a_port_take_over_the_file_and_one_that_starts_later_does(
    valkey_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "router.yaml"
    async with (
        Replica(valkey_url, "a"),
        command(valkey_url, file, processes=2) as (parent, router),
    ):
        put(file, yaml.safe_dump({"processes": 2, "aliases": {"smart": "m"}}))

        async def all_know() -> bool:
            return all([await knows(router, "smart") for _ in range(12)])

        await until(all_know, "both processes knowing the alias")
        parent.send_signal(signal.SIGHUP)
        for child, named in read_each(psutil.Process(parent.pid).children(), command_of):
            if "spawn_main" in named:
                child.kill()
        await until(lambda: is_ready(router), "new processes")
        await until(all_know, "new processes knowing the alias")
        parent.terminate()
        assert await parent.wait() == 0
