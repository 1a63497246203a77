"""The fleet of a soak: Redis behind relays, two routers, and workers that die and come back."""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.fleet.redis_server import VALKEY, RedisServer
from tests.ports import free_port
from tests.router.process.router_process import ENVIRONMENT, ROOT, router_process
from tests.router.world import RouterClient
from tests.soak.relay import Relay

REAL_MODEL = "pando-tiny"
LEASE_S = 10.0  # longer than any request here
ROUTER: dict[str, Any] = {
    "max_body_bytes": 8 * 1024 * 1024,
    "max_replica_requests": 20,
    "queue_requests": 48,
    "queue_timeout": 15.0,
    "first_byte_timeout": 15.0,
    "idle_timeout": 5.0,
    "body_timeout": 5.0,
    "header_timeout": 3.0,
    "health_interval": 1.0,
    "health_timeout": 1.0,
    "lease_seconds": LEASE_S,
}


class WorkerProcess:
    """A worker that is started, killed and started again under one name."""

    def __init__(self, name: str, *command: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._command = command
        self._environment = {**ENVIRONMENT, **(environment or {})}
        self._child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # its children die with it
        )

    async def kill(self) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, 9)
            await self._child.wait()
            self._child = None

    def signal(self, number: int) -> None:
        if self._child is not None:
            os.killpg(self._child.pid, number)


class SoakFleet:
    def __init__(self, light: int, real: int) -> None:
        self._counts = light, real
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        enter = self._stack.enter_async_context
        self.redis = RedisServer(VALKEY, "--save", "", "--appendonly", "no", port=free_port())
        self._stack.callback(self.redis.close)
        self.redis.start()
        # One wire for each router, and one for all workers.
        self.wires = [await enter(Relay(self.redis.port)) for _ in range(3)]
        urls = [f"redis://127.0.0.1:{wire.port}/0" for wire in self.wires]
        self.session = await enter(aiohttp.ClientSession())
        light, real = self._counts
        self.light = [self._light(f"light-{n}", urls[2]) for n in range(light)]
        self.real = [self._real(f"real-{n}", urls[2]) for n in range(real)]
        for worker in (*self.light, *self.real):
            await worker.start()
            self._stack.push_async_callback(worker.kill)
        self.routers: list[RouterClient] = []
        self.router_pids: list[int] = []
        for url in urls[:2]:
            child, router = await enter(router_process(url, **ROUTER))
            self.routers.append(router)
            self.router_pids.append(child.pid)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _light(self, name: str, redis: str) -> WorkerProcess:
        given = json.dumps({"name": name, "redis": redis})
        return WorkerProcess(name, sys.executable, "-m", "tests.soak.light_worker", given)

    def _real(self, name: str, redis: str) -> WorkerProcess:
        model = ROOT / "examples" / "models" / REAL_MODEL
        flags = {"model": str(model), "port": "0", "pool": "real", "replica": name, "threads": "1"}
        words = [word for key, value in flags.items() for word in (f"--{key}", value)]
        return WorkerProcess(
            name,
            *(sys.executable, "-m", "pando", "worker", *words),
            environment={"PANDO_WORKER_REDIS": redis, **_with_all_parts()},
        )

    async def replicas(self, router: RouterClient) -> list[dict[str, Any]]:
        """The live replicas, as the router sees them."""
        pools = (await router.get("/fleet")).json["pools"].values()
        return [row for rows in pools for row in rows if row["state"] != "lost"]

    async def all_ready(self) -> bool:
        """Whether each worker, restarted or not, is ready for each router."""
        names = {worker.name for worker in (*self.light, *self.real)}
        for router in self.routers:
            ready = {r["replica"] for r in await self.replicas(router) if r["state"] == "ready"}
            if ready != names:
                return False
        return True

    def router_rss(self) -> int:
        """Bytes of the larger router."""
        return max(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.router_pids
        ) * os.sysconf("SC_PAGE_SIZE")


def _with_all_parts() -> dict[str, str]:
    parts = os.pathsep.join(str(ROOT / part) for part in ("fleet", "router", "worker", "cli"))
    return {"PYTHONPATH": parts}
