"""Performs a router's part of warm join and hand-off: keeps prompts' bytes, and answers marks.

As a listener it observes answered requests; `run` watches the marks of every pool and performs
those that it can claim. `fleet/README.md` describes how routers share the marks.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from functools import partial
from math import inf
from time import monotonic
from uuid import uuid4

from pando_fleet.placement.tree import PrefixTree
from pando_fleet.records.marks import Mark, MarkKind, Marks
from pando_fleet.redis.client import FleetError, RedisClient
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.core.events import Head
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.fleet_view.snapshot import Member, MemberState, Target
from pando_router.fleet_view.view import FleetView
from pando_router.placing.placers import Placers
from pando_router.telemetry.metrics import Metrics
from pando_router.warming import hand_off, warm_join
from pando_router.warming.performing import perform
from pando_router.warming.prefiller import Prefiller
from pando_router.warming.prefixes import HotPrefixes, SentRequest

OBSERVE_EVERY_S = 0.005  # 200 samples a second are enough, and cost almost nothing
POLL_S = 0.5
WITHOUT_BYTES_S = 2.0  # a router without bytes leaves a mark this long to others

logger = logging.getLogger("pando.router")


class Warming(Listener):
    def __init__(
        self,
        limit_bytes: int,
        redis: RedisClient,
        view: FleetView,
        placers: Placers,
        prefiller: Prefiller,
        metrics: Metrics,
    ) -> None:
        self._redis = redis
        self._view = view
        self._placers = placers
        self._prefiller = prefiller
        self._metrics = metrics
        self._hot = HotPrefixes(limit_bytes, monotonic)
        self._next_at = 0.0 if limit_bytes else inf  # monotonic, of the next observation
        self._router = uuid4().hex
        self._first_seen: dict[tuple[str, MarkKind, str], float] = {}
        self._at_work: dict[tuple[str, MarkKind, str], asyncio.Task[None]] = {}
        metrics.follow(metrics.hot_prefix_bytes, lambda: self._hot.bytes)

    def answered(self, exchange: Exchange, route: Route, head: Head) -> None:
        """Counts the request as a use of its prefix, if it can be replayed and does not build on
        state that only one replica has. Images are kept nowhere, so requests with any do not
        count."""
        now, order = monotonic(), exchange.order
        if now < self._next_at or head.status >= 400 or order is None:
            return
        prompt = order.prompt
        request = prompt.request
        if exchange.endpoint.replay is None or request.earlier is not None or request.images:
            return
        self._next_at = now + OBSERVE_EVERY_S
        target = prompt.targets[0]
        name = target.adapter or target.model
        source = SentRequest(exchange.incoming.path, order.body, name, exchange.tenant)
        asyncio.get_running_loop().call_soon(self._hot.observe, route.pool, prompt.keys, source)

    async def run(self) -> None:
        """Performs marks until cancelled."""
        try:
            while True:
                await asyncio.sleep(POLL_S)
                for pool in filter(self._view.is_up, self._view.fleet.pools):
                    await self._look(pool)
        finally:
            for task in self._at_work.values():
                task.cancel()
            await asyncio.gather(*self._at_work.values(), return_exceptions=True)

    async def _look(self, pool: str) -> None:
        marks = Marks(self._redis, pool)
        try:
            found = await marks.all()
            self._forget_seen(pool, found)
            for mark in found:
                key = (pool, mark.kind, mark.replica)
                if mark.kind is MarkKind.DRAIN or key in self._at_work:
                    continue
                if not mark.is_over and (member := self._performable(pool, mark)) is not None:
                    claimed = await marks.claim(mark, self._router)
                    if claimed is not None:
                        task = asyncio.create_task(self._perform(pool, marks, claimed, member))
                        self._at_work[key] = task
                        task.add_done_callback(partial(self._ended, key))
        except FleetError as error:
            logger.warning("marks could not be read", extra={"pool": pool, "error": str(error)})

    def _forget_seen(self, pool: str, found: list[Mark]) -> None:
        open_now = {(pool, mark.kind, mark.replica) for mark in found if not mark.is_over}
        for key in [key for key in self._first_seen if key[0] == pool and key not in open_now]:
            del self._first_seen[key]

    def _ended(self, key: tuple[str, MarkKind, str], task: asyncio.Task[None]) -> None:
        del self._at_work[key]
        if not task.cancelled() and (error := task.exception()):
            logger.error("mark failed", exc_info=error)

    def _performable(self, pool: str, mark: Mark) -> Member | None:
        """The mark's replica, if this router should claim the mark now."""
        first_seen = self._first_seen.setdefault((pool, mark.kind, mark.replica), monotonic())
        members = self._view.fleet.pools.get(pool, ())
        member = next((m for m in members if m.beat.replica == mark.replica), None)
        if member is None or member.state is MemberState.LOST:
            return None
        if mark.kind is MarkKind.WARM and member.beat.state is not ReplicaState.READY:
            return None  # it cannot compute yet
        if not self._has(pool) and monotonic() - first_seen < WITHOUT_BYTES_S:
            return None
        return member

    def _has(self, pool: str) -> bool:
        return next(self._hot.hottest(pool), None) is not None

    async def _perform(self, pool: str, marks: Marks, mark: Mark, member: Member) -> None:
        prefills = partial(self._prefills, pool, mark, member.beat) if self._has(pool) else None
        counter = self._metrics.prefill_tokens.labels(pool, mark.kind)
        try:
            ended = await perform(marks, mark, prefills, counter.inc)
        except FleetError as error:  # the claim expires, and the mark continues when Redis is back
            logger.warning("mark left", extra={**_words(pool, mark), "error": str(error)})
            return
        if ended is None:
            logger.info("mark was withdrawn", extra=_words(pool, mark))
            return
        state, reason = ended
        self._metrics.marks.labels(pool, mark.kind, state).inc()
        logger.info("mark performed", extra={**_words(pool, mark), "state": state, "why": reason})

    def _prefills(
        self, pool: str, mark: Mark, beat: Heartbeat, left: int
    ) -> AsyncGenerator[int, None]:
        tree = PrefixTree(self._redis, pool)
        if mark.kind is MarkKind.WARM:
            hottest = self._hot.hottest(pool, warm_join.LEAST_REQUESTS)
            return warm_join.warm_join(hottest, beat, left, self._prefiller, tree)
        return hand_off.hand_off(
            self._hot.hottest(pool, hand_off.LEAST_REQUESTS),
            beat,
            lambda name: self._target(pool, name),
            self._prefiller,
            tree,
            self._placers.of(pool),
            self._placers.router,
        )

    def _target(self, pool: str, name: str) -> Target | None:
        targets = self._view.fleet.targets(name) or ()
        return next((target for target in targets if target.pool == pool), None)


def _words(pool: str, mark: Mark) -> dict[str, str]:
    return {"pool": pool, "kind": mark.kind, "replica": mark.replica}
