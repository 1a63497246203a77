"""One upstream: probes it regularly, and sends heartbeats for it while it is healthy."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from uuid import uuid4

from xxhash import xxh3_64_hexdigest

from pando_fleet.http.server.headers import Headers
from pando_fleet.redis.client import FleetError
from pando_fleet.registry.registry import NameTakenError, Registry
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_fleet.registry.upstreams import Agreed, UpstreamRecords
from pando_router.configuration.live import Live
from pando_router.configuration.upstream_spec import UpstreamSpec
from pando_router.fleet_view.snapshot import BYTES_PER_TOKEN
from pando_router.health.verdict import Verdict
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics
from pando_router.upstreams.adapters import Slots
from pando_router.upstreams.engine import Capacity, Engine
from pando_router.upstreams.learning import Learner
from pando_router.upstreams.probe import Probe, Probed, ProbeOutcome

BEAT_S = 0.5
CAPACITY_S = 5.0  # between two reads of the engine's capacity
JITTER = 0.1  # of the interval, either way, so that routers do not probe at the same moments

_NOTHING_AGREED = Agreed("", 0.0, 0.0, 0.0)

logger = logging.getLogger("pando.router")
_name_taken = BoundedLog("an upstream has the name of another replica")


class WatchedUpstream:
    """`run` it, then `leave`. Its incarnations are in `unhealthy` while it is not healthy."""

    def __init__(
        self,
        spec: UpstreamSpec,
        probe: Probe,
        key: Callable[[str], Headers],
        registry: Registry,
        records: UpstreamRecords,
        unhealthy: set[str],
        metrics: Metrics,
        live: Live,
        rng: random.Random,
    ) -> None:
        self.spec = spec
        self.learner = Learner()
        self._probe = probe
        self._key = key
        self._registry = registry
        self._records = records
        self._unhealthy = unhealthy
        self._marked: set[str] = set()  # what this upstream has in there
        self._probes = metrics.upstream_probes
        self._live = live
        self._rng = rng
        self._engine: Engine | None = None  # None until it has reported what it serves
        self._capacity = Capacity()
        self._slots = Slots()
        self._capacity_at = -CAPACITY_S
        self._state: ReplicaState | None = None  # None: no heartbeat is due
        self._verdict = Verdict(live.settings.unhealthy_after, 1)
        self._last: ProbeOutcome | None = None
        self._is_over = False  # its process has ended, and its cache with it
        self._unreported: str | None = None  # the incarnation whose end Redis does not know yet
        self._proposed = uuid4().hex  # its incarnation, until the routers have agreed on one
        self._agreed: Agreed | None = None
        self._sent: Heartbeat | None = None
        self._answered_at = 0.0  # monotonic, of the last probe that found it ready or starting

    @property
    def kind(self) -> str:
        return self._engine.kind if self._engine else ""

    @property
    def incarnation(self) -> str:
        return self._agreed.incarnation if self._agreed is not None else self._proposed

    @property
    def replica(self) -> Replica | None:
        """The replica as this router found it; None while it is not healthy."""
        beat = self._heartbeat()
        if beat is None:
            return None
        return Replica(beat, age_ms=int(1000 * (monotonic() - self._answered_at)))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe_forever())
            group.create_task(self._beat_forever())

    async def leave(self) -> None:
        """Sends a last heartbeat with which no request is placed there; other routers may go on."""
        if self._sent is not None and self._state is not None:
            gone = replace(self._sent, state=ReplicaState.DRAINING)
            with suppress(FleetError):
                await self._registry.beat(self.spec.pool, gone)
        self._mark(())

    async def _probe_forever(self) -> None:
        while True:
            started = monotonic()
            headers = self._key(self.spec.url)
            probed = await self._probe(headers, self._live.settings.health_timeout)
            self._probes.labels(self.spec.pool, self.spec.replica, probed.outcome.value).inc()
            if probed.engine is not None:
                await self._look(probed.engine, headers)
            await self._judge(probed)
            jitter = self._rng.uniform(1 - JITTER, 1 + JITTER)
            every_s = self._live.settings.upstream_interval * jitter
            await asyncio.sleep(max(0.0, started + every_s - monotonic()))

    async def _look(self, engine: Engine, headers: Headers) -> None:
        """Keeps what it serves, and from time to time reads its capacity."""
        changed, self._engine = engine != self._engine, engine
        if changed:
            self._proposed = uuid4().hex
        # What its adapters do changes with each request.
        if changed or engine.adapters or monotonic() - self._capacity_at >= CAPACITY_S:
            self._capacity_at = monotonic()
            timeout_s = self._live.settings.health_timeout
            found = await self._probe.capacity(engine.kind, headers, timeout_s)
            if found is not None or changed:
                self._capacity = found or Capacity()
                self._slots.see(self._capacity.adapters)

    async def _judge(self, probed: Probed) -> None:
        outcome = probed.outcome
        self._verdict.unhealthy_after = self._live.settings.unhealthy_after
        if outcome is ProbeOutcome.READY:
            self._verdict.count(passed=True)
        elif outcome in (ProbeOutcome.GONE, ProbeOutcome.STARTING):
            self._verdict.healthy = False  # certain after one probe
        else:
            self._verdict.count(passed=False)
        if outcome in (ProbeOutcome.READY, ProbeOutcome.STARTING):
            self._answered_at = monotonic()
        if not self._verdict.healthy:
            listed = self._sent.incarnation if self._sent is not None else self.incarnation
            self._mark({self.incarnation, listed})
        if outcome is ProbeOutcome.READY:
            self._is_over = False
        elif outcome in (ProbeOutcome.GONE, ProbeOutcome.STARTING) and not self._is_over:
            self._is_over = True
            self._slots.forget()
            self._proposed = uuid4().hex
            self._unreported = self._agreed.incarnation if self._agreed is not None else ""
        before = self._state
        if self._verdict.healthy:
            self._state = ReplicaState.READY if self._engine is not None else None
        else:
            self._state = ReplicaState.STARTING if outcome is ProbeOutcome.STARTING else None
        if self._state is ReplicaState.READY:
            self._mark(())
        with suppress(FleetError):  # else repeated before the next heartbeat
            await self._report_end()
        if self._state is not before or outcome is not self._last:
            self._log(probed, self._state is ReplicaState.READY)
            self._last = outcome
        if self._state is not before:
            await self._beat()

    def _mark(self, incarnations: Iterable[str]) -> None:
        """Makes these unhealthy, and no others of this upstream."""
        self._unhealthy -= self._marked
        self._marked = set(incarnations)
        self._unhealthy |= self._marked

    async def _report_end(self) -> None:
        """Reports its end to Redis: the next process at that address has an empty cache.

        Repeated until Redis has it, before any heartbeat that would bring the old cache back.
        """
        if self._unreported is not None:
            await self._records.ended(self.spec.pool, self.spec.replica, self._unreported)
            self._unreported = None

    async def _beat_forever(self) -> None:
        while True:
            await self._beat()
            await asyncio.sleep(BEAT_S)

    async def _beat(self) -> None:
        if self._state is None or self._engine is None:
            return
        try:
            await self._report_end()
            await self._agree(self._engine)
            beat = self._heartbeat()
            if beat is None:  # a probe failed meanwhile
                if self._is_over:  # and what this may have brought back is over, too
                    self._unreported = self.incarnation
                return
            await self._registry.beat(self.spec.pool, beat)
        except NameTakenError as error:
            _name_taken(self.spec.replica, **self._names(), error=str(error))
            return
        except FleetError:
            return  # the fleet view reports that Redis is away
        self._sent = beat

    async def _agree(self, engine: Engine) -> None:
        identity = "\0".join((self.spec.url, engine.model, *engine.adapters))
        learned = self.learner.take()
        try:
            agreed = await self._records.agree(
                self.spec.pool,
                self.spec.replica,
                xxh3_64_hexdigest(identity.encode()),
                self._proposed,
                prefill=learned.prefill,
                decode=learned.decode,
                bytes_per_token=learned.bytes_per_token,
            )
        except FleetError:
            self.learner.put_back(learned)
            raise
        if self._agreed is not None and self._agreed.incarnation != agreed.incarnation:
            logger.info("upstream was replaced", extra=self._names())
        self._agreed = agreed

    def _heartbeat(self) -> Heartbeat | None:
        """None while it is not healthy."""
        engine, state = self._engine, self._state
        if engine is None or state is None:
            return None
        spec, capacity, agreed = self.spec, self._capacity, self._agreed or _NOTHING_AGREED
        return Heartbeat(
            replica=spec.replica,
            incarnation=self.incarnation,
            url=spec.url,
            model=engine.model,
            state=state,
            endpoints=spec.endpoints,
            adapters=engine.adapters,
            adapter_states=self._slots.states(engine.adapters),
            adapter_slots=self._slots.count,
            free_adapter_slots=self._slots.free,
            adapters_waiting=self._slots.waiting,
            capacity_tokens=capacity.capacity_tokens,
            max_requests=spec.max_requests or capacity.max_requests,
            max_request_tokens=engine.max_request_tokens or capacity.max_request_tokens,
            pinned_tokens=capacity.pinned_tokens,
            running=capacity.running,
            waiting=capacity.waiting,
            prefill_tokens_per_s=agreed.prefill_tokens_per_s,
            decode_tokens_per_s=agreed.decode_tokens_per_s,
            bytes_per_token=agreed.bytes_per_token or BYTES_PER_TOKEN,
        )

    def _log(self, probed: Probed, is_ready: bool) -> None:
        if is_ready and probed.outcome is ProbeOutcome.READY:
            served = probed.engine and [probed.engine.model, *probed.engine.adapters]
            logger.info("upstream is ready", extra=self._names() | {"models": served})
        else:
            extra = self._names() | {"outcome": probed.outcome.value, "error": probed.why}
            logger.warning("upstream is not well", extra=extra)

    def _names(self) -> dict[str, str]:
        return {"pool": self.spec.pool, "replica": self.spec.replica, "url": self.spec.url}
