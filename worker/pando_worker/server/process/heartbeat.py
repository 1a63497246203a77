"""Tells the fleet how this worker is: on every change, and every 500 ms anyway.

Imported only where there is a Redis to tell. Redis being away is logged once and disturbs nothing.

A replica's name has one living owner. A worker that finds another one under its name waits until
that falls silent, as the one does that crashed and whose place this one takes; where it goes on
living, this worker takes a longer name of its own.
"""

import asyncio
import logging
from contextlib import suppress
from uuid import uuid4

from pando_fleet.records.marks import Marks
from pando_fleet.redis.client import FleetError, RedisClient
from pando_fleet.registry.registry import NameTakenError, Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_worker.heartbeats import MAX_INTERVAL_S, MIN_INTERVAL_S, with_report
from pando_worker.server.app import endpoints
from pando_worker.server.front.startup import Address
from pando_worker.server.process.departure import handed_off
from pando_worker.server.service import Service

log = logging.getLogger("pando.worker")


class Heart:
    """Beats while `run` runs; `leave` takes the replica out of the fleet."""

    def __init__(self, redis: RedisClient, service: Service, address: Address) -> None:
        self._redis = redis
        self._registry = Registry(redis)
        self._service = service
        self._address = address
        self._pool = service.settings.pool
        self._endpoints = endpoints(service)
        self._incarnation = uuid4().hex
        self._replica = address.replica
        self._away = False
        self._taken: NameTakenError | None = None  # since when its name is another's
        self._rival = ""  # the URL of the last one that wanted this name

    async def run(self) -> None:
        changed = self._service.engine.changed
        await self._beat()
        while True:
            await asyncio.sleep(MIN_INTERVAL_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_INTERVAL_S - MIN_INTERVAL_S):
                    await changed.wait()
            changed.clear()
            await self._beat()

    async def handed_off(self) -> None:
        """Returns when nobody needs this replica's tree any more."""
        await handed_off(Marks(self._redis, self._pool), self._replica)

    async def leave(self) -> None:
        try:
            await self._registry.leave(self._pool, self._replica, self._incarnation)
        except FleetError as error:
            log.warning("could not leave the fleet, it will notice: %s", error)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _beat(self) -> None:
        try:
            rival = await self._registry.beat(self._pool, self._heartbeat())
        except NameTakenError as error:
            self._contest(error)
        except FleetError as error:
            if not self._away:
                log.warning("heartbeats do not reach the fleet: %s", error)
            self._away = True
        else:
            if self._away:
                log.info("heartbeats reach the fleet again")
            self._away = False
            self._taken = None
            if rival and rival != self._rival:
                self._rival = rival
                log.warning(
                    "another worker, at %s, has this one's name, %r, and gets a longer one: give"
                    " each worker of pool %r its own (replica)",
                    *(rival, self._replica, self._pool),
                )

    def _contest(self, taken: NameTakenError) -> None:
        """The name is another's, who may be dead: then its heartbeats end."""
        if self._taken is None:
            self._taken = taken
            log.info("%s: waiting whether that one falls silent", taken)
        elif taken.heard != self._taken.heard:
            self._taken = None
            self._replica = f"{self._address.replica}-{self._incarnation[:8]}"
            log.warning(
                "%s, so this one is %r from now on: give each worker of pool %r its own name"
                " (replica)",
                *(taken, self._replica, self._pool),
            )

    def _heartbeat(self) -> Heartbeat:
        engine = self._service.engine
        beat = Heartbeat(
            replica=self._replica,
            incarnation=self._incarnation,
            url=self._address.url,
            model=self._service.model.name,
            state=self._state(),
            endpoints=self._endpoints,
            bytes_per_token=self._service.prompt_meter.bytes_per_token,
            inter_token_seconds_total=self._service.metrics.gaps_s,
            inter_tokens_total=self._service.metrics.gaps,
        )
        if ready := engine.ready:
            beat = with_report(beat, ready)
        return beat if engine.stats is None else with_report(beat, engine.stats)

    def _state(self) -> ReplicaState:
        if self._service.engine.is_stalled:  # also while it drains: its streams are to move
            return ReplicaState.STALLED
        if self._service.gate.draining:
            return ReplicaState.DRAINING
        if self._service.engine.ready is None:
            return ReplicaState.STARTING
        return ReplicaState.READY
