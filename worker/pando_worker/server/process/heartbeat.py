"""Reports this worker's state to the fleet: on every change, and at least every 500 ms.

Imported only if there is a Redis. If Redis is unreachable, this is logged once and the worker goes
on serving.

A replica's name has one live owner. A worker whose name is taken waits for the other's heartbeats
to end, because the other worker may have crashed and this one replaces it. If the heartbeats go on,
this worker takes a longer name of its own.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

from pando_fleet.records.marks import Marks
from pando_fleet.redis.client import FleetError, RedisClient
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.adapter import Adapter, AdapterPlace
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
        self._taken: NameTakenError | None = None  # the current conflict over its name
        self._rival = ""  # URL of the last worker that claimed this name

    async def run(self) -> None:
        changed = self._service.engine.changed
        await self._beat()
        await self._compare_models()
        while True:
            await asyncio.sleep(MIN_INTERVAL_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_INTERVAL_S - MIN_INTERVAL_S):
                    await changed.wait()
            changed.clear()
            await self._beat()

    async def handed_off(self) -> None:
        """Returns when no router needs this replica's tree any more."""
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
                    "another worker, at %s, uses this worker's name, %r, and gets a longer one:"
                    " give each worker of pool %r its own name (replica)",
                    *(rival, self._replica, self._pool),
                )

    async def _compare_models(self) -> None:
        """A pool's replicas scale and queue as one, so two models in it are probably a mistake."""
        try:
            found = await self._registry.replicas(self._pool)
        except FleetError:
            return  # `_beat` has logged it
        model = self._service.model.name
        others = (one.beat for one in found if one.age_ms <= FRESH_MS)
        if other := next((beat for beat in others if beat.model != model), None):
            log.warning(
                "pool %r also has %r, which serves %r and not %r: give each model a pool of its own"
                " (pool), unless this is a rollout",
                *(self._pool, other.replica, other.model, model),
            )

    def _contest(self, taken: NameTakenError) -> None:
        """Handle a taken name. If its owner is dead, its heartbeats will end."""
        if self._taken is None:
            self._taken = taken
            log.info("%s: waiting for its heartbeats to end", taken)
        elif taken.heard != self._taken.heard:
            self._taken = None
            self._replica = f"{self._address.replica}-{self._incarnation[:8]}"
            log.warning(
                "%s, so this worker is %r from now on: give each worker of pool %r its own name"
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
            admin_token=self._service.admin.token,
            state=self._state(),
            endpoints=self._endpoints,
            adapters=tuple(each.name for each in self._service.adapters),
            adapter_states=self._adapter_states(),
            bytes_per_token=self._service.prompt_meter.bytes_per_token,
            image_rule=self._service.image_rule,
            inter_token_seconds_total=self._service.metrics.gaps_s,
            inter_tokens_total=self._service.metrics.gaps,
        )
        if ready := engine.ready:
            beat = with_report(beat, ready)
        elif loading := engine.loading:
            beat = replace(beat, stage=loading.stage, stage_done=loading.done)
        return beat if engine.stats is None else with_report(beat, engine.stats)

    def _adapter_states(self) -> tuple[Adapter, ...]:
        places = self._service.engine.adapter_places
        place_of = dict.fromkeys(places.host, AdapterPlace.HOST)
        place_of |= dict.fromkeys(places.waiting, AdapterPlace.WAITING)
        place_of |= dict.fromkeys(places.device, AdapterPlace.DEVICE)
        return tuple(
            Adapter(
                name=each.name,
                identity=each.identity.hex(),
                place=place_of.get(each.identity, AdapterPlace.DISK),
                pinned=each.is_pinned,
            )
            for each in self._service.adapters
        )

    def _state(self) -> ReplicaState:
        if self._service.engine.is_stalled:  # also while it drains: its streams must move elsewhere
            return ReplicaState.STALLED
        if self._service.gate.draining:
            return ReplicaState.DRAINING
        if not self._service.is_loaded:
            return ReplicaState.STARTING
        return ReplicaState.READY
