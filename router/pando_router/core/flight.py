"""A request's stay at one replica: its in-flight count, its lease, its word on the cache."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pando_fleet.prefix import CHUNK_BYTES, KEY_BYTES
from pando_router.core.breaker import Breaker
from pando_router.core.in_flight import InFlight
from pando_router.metrics import Metrics
from pando_router.route import Prompt, Route

_NOT_IMPLEMENTED = 501


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What a replica says with its first byte: prompt tokens it had cached, of how many."""

    cached_tokens: int
    prompt_tokens: int


class Observation(Protocol):
    """Somebody who learns from an answer, as `upstreams.learning` does from foreign engines'."""

    def first_byte(self, report: CacheReport | None) -> None: ...

    def add(self, chunk: bytes) -> None: ...

    def done(self) -> CacheReport | None:
        """What the whole answer says of the cache, where its first byte did not."""
        ...


@dataclass(frozen=True, slots=True)
class Flights:
    """What every flight is written down in."""

    in_flight: InFlight
    breaker: Breaker
    metrics: Metrics
    released: Callable[[str], None]  # told the pool where a replica has room again
    observe: Callable[[Prompt, Route], Observation | None]  # where an answer is to be learned from
    leased: set["Flight"] = field(default_factory=set)

    def open(self, prompt: Prompt, route: Route) -> "Flight":
        return Flight(self, prompt, route)

    def renew(self, lease_ms: int) -> None:
        """Leases last so long from now: to be called more often than they would end."""
        for flight in self.leased:
            flight.renew(lease_ms)

    def abandon(self, prompt: Prompt, route: Route) -> None:
        """The route is not taken after all: its lease goes, and what placing it wrote down."""
        flight = Flight(self, prompt, route)
        flight.forget()
        flight.release()


class Flight:
    """`with flights.open(prompt, route) as flight:` around one try; at its end the lease goes."""

    def __init__(self, flights: Flights, prompt: Prompt, route: Route) -> None:
        self._flights = flights
        self._prompt = prompt
        self._route = route
        self.observation: Observation | None = None

    def __enter__(self) -> "Flight":
        self.observation = self._flights.observe(self._prompt, self._route)
        self._flights.in_flight.started(self._route.incarnation)
        self._flights.breaker.trying(self._route.incarnation)
        if self._route.lease:
            self._flights.leased.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._flights.in_flight.ended(self._route.incarnation)
        self._flights.leased.discard(self)
        self.release()
        self._flights.released(self._route.pool)

    def renew(self, lease_ms: int) -> None:
        if lease := self._route.lease:
            lease.placer.renew(lease.placement, lease_ms)

    def release(self) -> None:
        if lease := self._route.lease:
            lease.placer.release(lease.placement)

    def first_byte(self, report: CacheReport | None, *, complete: bool) -> None:
        """The replica answers: the prompt is computed, and `report` says what of it was cached.

        `complete` says that the answer is all there, and the whole lease about to go.
        """
        self._flights.breaker.succeeded(self._route.incarnation)
        if (lease := self._route.lease) and not complete:
            lease.placer.prefilled(lease.placement)
        if self.observation is not None:
            self.observation.first_byte(report)
        if report is not None:
            self._count(report)
            self._correct(report)

    def done(self) -> CacheReport | None:
        """The answer is all there; of an observed one, what it says of the cache."""
        if self.observation is None or (report := self.observation.done()) is None:
            return None
        self._count(report)
        self._correct(report)
        return report

    def refused(self, status: int) -> None:
        """The replica answers with an error, and has computed nothing that stays.

        From 500 on it has failed, which costs it its traffic: it fails faster than others answer,
        so its backlog would draw them all. 501 says that it is well and does not know the request.
        """
        if status >= 500 and status != _NOT_IMPLEMENTED:
            self._failed("status")
        else:
            self._flights.breaker.succeeded(self._route.incarnation)
        self.forget()

    def not_sent(self) -> None:
        """Nothing went to the replica, which says nothing of it."""
        self.forget()

    def failed_before_first_byte(self) -> None:
        """Silence is a failure, too."""
        self._failed("before_first_byte")
        self.forget()

    def failed_mid_stream(self) -> None:
        self._failed("mid_stream")

    def _failed(self, when: str) -> None:
        self._flights.breaker.failed(self._route.incarnation)
        self._flights.metrics.replica_failures.labels(self._route.pool, when).inc()

    def forget(self) -> None:
        """Placing touched the whole path; the replica still holds only what it held before."""
        self._cut(self._route.matched_chunks)

    def _count(self, report: CacheReport) -> None:
        metrics, pool = self._flights.metrics, self._route.pool
        metrics.prompt_tokens[pool].inc(report.prompt_tokens)
        metrics.predicted_tokens[pool].inc(self._route.matched_tokens)
        metrics.delivered_tokens[pool].inc(report.cached_tokens)

    def _correct(self, report: CacheReport) -> None:
        """Cuts the path where the replica had clearly less of it than the tree said."""
        lease, request = self._route.lease, self._prompt.request
        if lease is None or request.extra_bytes or not report.prompt_tokens:
            return
        prompt_bytes_per_token = len(request.prefix) / report.prompt_tokens
        delivered = int(report.cached_tokens * prompt_bytes_per_token / CHUNK_BYTES)  # full chunks
        # One chunk is within what page size and uneven bytes per token make of a full hit.
        if delivered < self._route.matched_chunks - 1:
            self._flights.metrics.cuts.labels(self._route.pool).inc()
            self._cut(delivered)

    def _cut(self, depth: int) -> None:
        keys = self._prompt.keys
        if (lease := self._route.lease) and depth * KEY_BYTES < len(keys):
            lease.placer.cut(lease.placement, keys, depth)
