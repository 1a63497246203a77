"""Routers with a settings file that a test changes: in this event loop, or as a process."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from pando.settings.load import Given, Sources
from pando_router.app import Router, running_router, server_of
from pando_router.configuration.reloader import Reloader, SettingsSource
from pando_router.configuration.settings import RouterSettings
from tests.ports import free_port
from tests.router.process.router_process import ENVIRONMENT, ROOT, is_ready
from tests.router.world import SWEEP_S, RouterClient, until
from tests.waiting import PATIENCE_S

PATIENT = {"placement_timeout": 5.0}
"""Defaults in the file, patient enough for a busy machine."""


@dataclass
class Reloading:
    router: RouterClient
    running: Router
    reloader: Reloader
    file: Path

    async def write(self, **settings: Any) -> None:
        """Writes other settings to the file and lets the router read it."""
        put(self.file, yaml.safe_dump(PATIENT | settings))
        await self.reloader.look()


def put(file: Path, text: str) -> None:
    """Replaces the file at once, like an editor or Kubernetes."""
    beside = file.with_name("new.yaml")
    beside.write_text(text)
    beside.replace(file)


@asynccontextmanager
async def reloading(
    redis_url: str, file: Path, *, flags: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Reloading]:
    """A router in this event loop with a settings file; flags override it."""
    put(file, yaml.safe_dump(PATIENT | settings))
    usual = {"redis": redis_url} | (flags or {})
    sources = Sources(RouterSettings, {n: Given(v, f"--{n}") for n, v in usual.items()}, file)
    given = sources.load()
    async with running_router(given, sweep_s=SWEEP_S) as router:
        server = server_of(router, sweep_s=SWEEP_S)
        port = await server.listen("127.0.0.1", 0)
        reloader = Reloader(SettingsSource(file, sources.load), router.live, router.metrics)
        await reloader.look()
        try:
            timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                yield Reloading(RouterClient(port, session), router, reloader, file)
        finally:
            await server.close(1.0)


@asynccontextmanager
async def command(
    redis_url: str, file: Path, **settings: Any
) -> AsyncIterator[tuple[asyncio.subprocess.Process, RouterClient]]:
    """`pando router --config FILE` as a process."""
    port = free_port()
    put(file, yaml.safe_dump(settings))
    environment = {
        **ENVIRONMENT,
        "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{ROOT / 'cli'}",
        "PANDO_ROUTER_REDIS": redis_url,
    }
    arguments = ("-m", "pando", "router", "--config", str(file), "--port", str(port))
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            router = RouterClient(port, session)
            await until(lambda: is_ready(router), "the router being ready")
            yield child, router
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()
