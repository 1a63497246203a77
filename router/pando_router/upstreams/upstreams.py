"""All static upstreams in this router's current settings."""

import asyncio
import random
from collections.abc import Callable

from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Replica
from pando_fleet.registry.upstreams import UpstreamRecords
from pando_router.configuration.live import Live
from pando_router.http.upstream import Upstream
from pando_router.telemetry.metrics import Metrics
from pando_router.tenants.forwarding import Forwarding
from pando_router.upstreams.learning import Learner
from pando_router.upstreams.probe import Probe
from pando_router.upstreams.watched import WatchedUpstream

LEAVE_S = 1.0  # for last heartbeats at shutdown


class Upstreams:
    """Call `watch` regularly, and `close` at the end. Must be created in the event loop."""

    def __init__(
        self,
        live: Live,
        http: Upstream,
        forwarding: Forwarding,
        registry: Registry,
        records: UpstreamRecords,
        unhealthy: set[str],
        metrics: Metrics,
        rng: random.Random,
        watch: Callable[[str, "asyncio.Task[None]"], None],
    ) -> None:
        """Keeps in `unhealthy` the incarnations of those that do not answer. `watch` receives each
        task, with a description, to report its failure."""
        self._live = live
        self._watch = watch
        self._http = http
        self._forwarding = forwarding
        self._registry = registry
        self._records = records
        self._unhealthy = unhealthy
        self._metrics = metrics
        self._rng = rng
        self._watched: dict[str, tuple[WatchedUpstream, asyncio.Task[None]]] = {}  # by URL
        self.learners: dict[str, Learner] = {}  # by URL
        self._leaving: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Starts probing those that are new in the settings, and stops for those that are gone."""
        wanted = {spec.url: spec for spec in self._live.settings.upstream}
        for url, (watched, task) in list(self._watched.items()):
            if wanted.get(url) != watched.spec:
                del self._watched[url], self.learners[url]
                stays = url in wanted and wanted[url].pool == watched.spec.pool
                stays = stays and wanted[url].replica == watched.spec.replica
                self._end(watched, task, leave=not stays)
        for url in wanted.keys() - self._watched.keys():
            watched = WatchedUpstream(
                wanted[url],
                Probe(self._http, url),
                self._forwarding.key,
                self._registry,
                self._records,
                self._unhealthy,
                self._metrics,
                self._live,
                self._rng,
            )
            task = asyncio.create_task(watched.run())
            self._watch(f"the probing of {url}", task)
            self._watched[url] = watched, task
            self.learners[url] = watched.learner

    def is_probed(self, url: str) -> bool:
        return url in self._watched

    def kind(self, url: str) -> str:
        """The kind of engine, as it reports itself; empty if unknown."""
        found = self._watched.get(url)
        return found[0].kind if found else ""

    def replicas(self) -> dict[str, list[Replica]]:
        """The healthy upstreams by pool, as this router found them."""
        found: dict[str, list[Replica]] = {}
        for watched, _ in self._watched.values():
            if (replica := watched.replica) is not None:
                found.setdefault(watched.spec.pool, []).append(replica)
        return found

    async def close(self) -> None:
        """Stops without last heartbeats: other routers, or this one restarted, keep probing."""
        for watched, task in self._watched.values():
            self._end(watched, task, leave=False)
        self._watched.clear()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVE_S)

    def _end(self, watched: WatchedUpstream, task: asyncio.Task[None], *, leave: bool) -> None:
        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])
            if leave:
                await watched.leave()

        ending = asyncio.create_task(end())
        self._leaving.add(ending)
        ending.add_done_callback(self._leaving.discard)
