"""One operator: it leads or waits to lead, and serves health and metrics."""

import asyncio
import logging
from contextlib import AsyncExitStack

from aiohttp import web

from pando_fleet.http.listener import EVERYWHERE, bound_everywhere
from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import RedisClient, connect
from pando_fleet.registry.registry import Registry
from pando_operator.controller.manager import Manager
from pando_operator.controller.observing.gpu_shares import GpuShares
from pando_operator.controller.observing.turns import Turns
from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.controller.shared import Shared
from pando_operator.kube.backoff import Backoff
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import KubeError
from pando_operator.kube.events import Recorder
from pando_operator.kube.lease import Leader
from pando_operator.kube.resources import Key, disruption_budgets
from pando_operator.metrics import Metrics
from pando_operator.settings import OperatorSettings
from pando_operator.worker_client import WorkerClient

CLOSE_S = 0.5  # limit for closing the server at the end

log = logging.getLogger("pando.operator")


class Operator:
    """`lead` until cancelled, then `close`."""

    def __init__(self, settings: OperatorSettings, kube: Kube) -> None:
        self.metrics = Metrics()
        self.port = 0
        self._settings = settings
        self._kube = kube
        kube.on_call = self.metrics.called
        self._redis: RedisClient = connect(settings.redis)
        self._workers = WorkerClient()
        key = Key(settings.lease_namespace, settings.lease_name)
        self.leader = Leader(kube, key, settings.identity, settings.terms())
        self._is_ready = False  # it leads and knows the cluster
        self.metrics.leading.set_function(lambda: float(self.leader.is_leading))

    async def lead(self) -> None:
        await self.leader.lead(self._work)

    async def listen(self, closing: AsyncExitStack) -> None:
        """Raises OSError."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S)
        await runner.setup()
        closing.push_async_callback(runner.cleanup)
        host, port = self._settings.host, self._settings.port
        if host == EVERYWHERE:
            await web.SockSite(runner, bound_everywhere(port)).start()
        else:
            await web.TCPSite(runner, host, port).start()
        self.port = runner.addresses[0][1]
        log.info("listening", extra={"host": host, "port": self.port})

    async def close(self) -> None:
        await self._kube.close()
        await self._workers.close()
        await self._redis.aclose()

    async def _work(self) -> None:
        """Runs while it leads; keeps nothing from one term to the next."""
        manager, minor = Manager(), await self._server_minor()
        caches = WatchCaches(
            self._kube,
            self._settings.namespaces,
            manager.wake,
            lambda resource: self.metrics.watch_restarts.labels(resource).inc(),
            disruption_budgets(minor),
        )
        self.metrics.follow_age(lambda: caches.silent_s)
        ready = asyncio.create_task(self._becomes_ready(caches))
        try:
            await manager.run(self._shared(caches, minor))
        finally:
            ready.cancel()
            self._is_ready = False
            self.metrics.follow_age(lambda: 0.0)

    async def _becomes_ready(self, caches: WatchCaches) -> None:
        await caches.settled()
        self._is_ready = True

    async def _server_minor(self) -> int:
        backoff = Backoff()
        while True:
            try:
                return await self._kube.minor()
            except KubeError as error:
                log.warning("the server's version is unknown", extra={"error": str(error)})
                await asyncio.sleep(backoff.next())

    def _shared(self, caches: WatchCaches, server_minor: int) -> Shared:
        settings, redis = self._settings, self._redis
        return Shared(
            kube=self._kube,
            caches=caches,
            turns=Turns(caches),
            gpus=GpuShares(settings.gpu_budget, caches.pools),
            workers=self._workers,
            redis=redis,
            registry=Registry(redis),
            queues=Queues(redis),
            expected=ExpectedPools(redis),
            past=PastDecisions(redis),
            recorder=Recorder(self._kube, settings.identity),
            metrics=self.metrics,
            settings=settings,
            server_minor=server_minor,
        )

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "leading": self.leader.is_leading})

    async def _readyz(self, _: web.Request) -> web.Response:
        if self.leader.error:
            return web.json_response({"status": self.leader.error}, status=503)
        if self.leader.is_leading and not self._is_ready:
            return web.json_response({"status": "still reading the cluster"}, status=503)
        return web.json_response({"status": "ready", "leading": self.leader.is_leading})

    async def _metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self.metrics.render(), headers=headers)
