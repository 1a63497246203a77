"""Every setting that needs no restart takes effect on a running router, with its existing replicas,
pools, queues, connections and requests.

The tests are generated from the settings: a new setting fails here until EFFECTS (`effects.py`) has
an effect that is visible from outside, or the setting is marked RESTART.
"""

import asyncio
import gc
import weakref
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml

from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings
from pando_router.core import retry_budget
from tests.router.configuration.effects import EFFECTS, IMPATIENT
from tests.router.configuration.looks import Look, crowded, lists
from tests.router.configuration.reloading import command, put
from tests.router.configuration.running_world import World, filled, running
from tests.router.world import Replica, completion, never, until
from tests.waiting import PATIENCE_S, pauses

ENDINGS = ("leave_seconds", "drain_seconds")
"""Read when a router ends; tested with a process below."""

RELOADABLE = sorted(RouterSettings.model_fields.keys() - needing_restart(RouterSettings))


@pytest.mark.parametrize("name", [name for name in RELOADABLE if name not in ENDINGS])
async def test_a_reloaded_setting_takes_effect_on_what_exists_already(
    name: str,
    valkey_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert name in EFFECTS, f"{name}: show its effect in EFFECTS, or mark it RESTART"
    effect = EFFECTS[name]
    caplog.set_level("INFO", "pando.router")
    monkeypatch.setattr(retry_budget, "MIN_PER_S", 0 if name == "retry_share" else 10)
    given = effect.given | {name: effect.before}
    async with running(valkey_url, tmp_path, caplog, **given) as world:
        await shows(world, effect.look, effect.sees[0])
        new = filled(given | {name: effect.after}, world.engine, world.folder)
        await world.reloading.write(**new)
        await shows(world, effect.look, effect.sees[1])


async def shows(world: World, look: Look, wanted: Any) -> None:
    """The effect may take until the router's next look at the fleet, but no longer."""
    deadline = monotonic() + PATIENCE_S
    for pause in pauses():
        if (found := await look(world)) == wanted:
            return
        assert monotonic() < deadline, f"{found!r} instead of {wanted!r}"
        await asyncio.sleep(pause)


def test_no_effect_is_of_a_setting_that_is_gone() -> None:
    assert set(RELOADABLE) == EFFECTS.keys() | set(ENDINGS)


async def test_nobody_keeps_settings_that_were_replaced(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(valkey_url, tmp_path, caplog, **IMPATIENT) as world:
        live = world.reloading.running.live
        await world.reloading.write(**IMPATIENT, aliases={"one": "m"})
        replaced = weakref.ref(live.settings)
        await world.reloading.write(**IMPATIENT, aliases={"two": "m"})
        assert await crowded()(world) == "queue_timeout"  # made again from new settings
        await world.router.get("/openapi.json")

        async def is_gone() -> bool:
            gc.collect()
            return replaced() is None

        await until(is_gone, "the old settings being gone")


@pytest.mark.e2e
@pytest.mark.parametrize("name", ENDINGS)
async def test_a_router_ends_as_its_settings_are_by_then(
    name: str, valkey_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "router.yaml"
    long = {"leave_seconds": 0, "drain_seconds": 0, name: 3600}
    async with Replica(valkey_url, "a") as a, command(valkey_url, file, **long) as (child, router):
        await router.ready("a")
        a.answer = never
        held = asyncio.create_task(router.post("/v1/completions", completion()))
        await until(lambda: a.received, "a request that does not end")
        put(file, yaml.safe_dump({"leave_seconds": 0, "drain_seconds": 0, "aliases": {"new": "m"}}))
        await until(lambda: lists(router, "new"), "the file being read")
        child.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await child.wait()
        await asyncio.gather(held, return_exceptions=True)
