"""The workers' two endpoints for adapters over real HTTP, for the workers of a simulated cluster.

One server stands for all workers: each has its own path. A test may hold loads and unloads back, or
give a worker no room.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from aiohttp import web

from pando_fleet.registry.adapter import IDENTITY_HEADER, Adapter, AdapterPlace
from tests.operator.controller.cluster import Cluster, Worker

SLOTS = 8


@dataclass(slots=True)
class AdapterWorkers:
    cluster: Cluster
    url: str = ""
    slots: int = SLOTS  # of new workers
    broken: set[str] = field(default_factory=set)  # sources
    full: set[str] = field(default_factory=set)  # workers without room
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # unloads wait for it
    loading: Counter[str] = field(default_factory=Counter)  # now, by adapter
    most_loading: Counter[str] = field(default_factory=Counter)
    calls: list[tuple[str, str, str]] = field(default_factory=list)  # verb, worker, adapter
    open: asyncio.Event = field(default_factory=asyncio.Event)  # loads wait for it

    def begin(self, worker: Worker) -> None:
        worker.url, worker.slots = f"{self.url}/{worker.pod}", self.slots

    def serving(self, name: str) -> dict[str, str]:
        """The identity of the adapter at each worker that has it."""
        return {
            worker.pod: worker.adapters[name].identity
            for worker in self.cluster.workers.values()
            if name in worker.adapters
        }

    async def load(self, request: web.Request) -> web.Response:
        worker, body = self._worker(request), await request.json()
        name, source = body["lora_name"], body["lora_path"]
        self.calls.append(("load", worker.pod, name))
        self.loading[name] += 1
        self.most_loading[name] = max(self.most_loading[name], self.loading[name])
        try:
            await self.open.wait()
        finally:
            self.loading[name] -= 1
        if source in self.broken:
            return _refused(400, f"{source} has no adapter_config.json")
        if worker.pod in self.full:
            return _refused(507, "no space left on device")
        there = worker.adapters.get(name)
        if there and not body["load_inplace"]:
            return _refused(400, f"{name} is loaded already")
        made = Adapter(
            name=name, identity=identity(source), place=AdapterPlace.HOST, pinned=body["pin"]
        )
        worker.adapters[name] = replace(made, place=AdapterPlace.DEVICE) if body["pin"] else made
        return web.Response(text="Success", headers={IDENTITY_HEADER: made.identity})

    async def unload(self, request: web.Request) -> web.Response:
        worker, name = self._worker(request), (await request.json())["lora_name"]
        self.calls.append(("unload", worker.pod, name))
        if worker.adapters.pop(name, None) is None:
            return _refused(404, f"{name} is not loaded")
        await self.idle.wait()
        return web.Response(text="Success")

    def _worker(self, request: web.Request) -> Worker:
        return self.cluster.workers[request.match_info["worker"]]


def identity(source: str) -> str:
    """Of the weights that a source has."""
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest()


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


@asynccontextmanager
async def adapter_workers(cluster: Cluster) -> AsyncIterator[AdapterWorkers]:
    """Serves until the end. At first neither loads nor unloads wait."""
    workers = AdapterWorkers(cluster)
    workers.open.set()
    workers.idle.set()
    application = web.Application()
    application.router.add_post("/{worker}/v1/load_lora_adapter", workers.load)
    application.router.add_post("/{worker}/v1/unload_lora_adapter", workers.unload)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        workers.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        cluster.made = workers.begin
        yield workers
    finally:
        await runner.cleanup()
