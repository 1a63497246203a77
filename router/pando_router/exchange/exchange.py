"""`Exchange`: one request on its way through the data path, and what becomes of it.

It alone changes its fields, in methods that are named after what has happened; everybody else
reads them. It notes an event first, then it tells the listeners, which are the same for all
requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, Concatenate, ParamSpec

import msgspec

from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.core.events import CacheReport, Failure, Head, Observer
from pando_router.core.route import Route
from pando_router.endpoints import Endpoint
from pando_router.exchange.past import Try
from pando_router.exchange.tail import Tail
from pando_router.http.incoming import Incoming
from pando_router.migration.plan import Plan
from pando_router.migration.stream import Stream
from pando_router.placing.route import Prompt
from pando_router.telemetry.tracing import RequestTrace
from pando_router.tenants.charge import Charge

P = ParamSpec("P")


class Listener:
    """Follows all requests; a subclass overrides the events that it wants.

    A request's events come in the order in which they happen. `ended` comes once, after everything
    else, and it alone for a request that never came so far as to be `asked`.
    """

    __slots__ = ()

    def asked(self, exchange: "Exchange", asked: "Order") -> None:
        """The request was read: what it asks for is known."""

    def placed(self, exchange: "Exchange", route: Route) -> None:
        """These are the events of `Observer`."""

    def not_sent(self, exchange: "Exchange", route: Route) -> None: ...

    def was_busy(self, exchange: "Exchange", route: Route) -> None: ...

    def failed(self, exchange: "Exchange", route: Route, error: str, how: Failure) -> None: ...

    def retried(self, exchange: "Exchange", route: Route, reason: str) -> None: ...

    def retry_refused(self, exchange: "Exchange", route: Route) -> None: ...

    def answered(self, exchange: "Exchange", route: Route, head: Head) -> None: ...

    def cached(
        self, exchange: "Exchange", route: Route, report: CacheReport, *, was_cut: bool
    ) -> None: ...

    def ended(self, exchange: "Exchange") -> None:
        """The request is over."""


class Audience:
    """By event the listeners that override it: found once, not for each request."""

    def __init__(self, *listeners: Listener) -> None:
        def of(event: Callable[Concatenate[Listener, P], None]) -> tuple[Callable[P, None], ...]:
            name = event.__name__
            hear = (one for one in listeners if getattr(type(one), name) is not event)
            return tuple(getattr(one, name) for one in hear)

        self.asked = of(Listener.asked)
        self.placed = of(Listener.placed)
        self.not_sent = of(Listener.not_sent)
        self.was_busy = of(Listener.was_busy)
        self.failed = of(Listener.failed)
        self.retried = of(Listener.retried)
        self.retry_refused = of(Listener.retry_refused)
        self.answered = of(Listener.answered)
        self.cached = of(Listener.cached)
        self.ended = of(Listener.ended)


class Order(msgspec.Struct, frozen=True, gc=False):
    """What a request asks for, made once of its body."""

    prompt: Prompt
    body: bytes  # for the replica
    plan: Plan | None = None  # for the loss of that


@dataclass(slots=True, eq=False)  # a msgspec.Struct is made faster, and changed more slowly
class Exchange(Observer):
    incoming: Incoming
    endpoint: Endpoint[Any]
    request_id: str
    audience: Audience
    trace: RequestTrace | None = None  # where traces are wanted
    started: float = field(default_factory=perf_counter)

    # What the request asks for, once that is known.
    tenant: Tenant = OPEN
    limit_s: float = inf  # from `started` to the end of its answer
    order: Order | None = None
    charge: Charge | None = None  # where the tenant's use is counted
    tail: Tail | None = None  # the answer's end, where a listener reads it

    asked_s: float = 0.0  # how long it has waited for Redis before its placement

    # What has become of it.
    status: int = 0
    route: Route | None = None  # of the last try
    last_try: Try | None = None
    tries: int = 0
    is_at_work: bool = False  # a replica was sent it, and has not said that it does nothing for it
    has_answer: bool = False  # a good one has begun
    ttfb_s: float | None = None
    report: CacheReport | None = None
    stream: Stream | None = None  # what is out of an answer that can be migrated
    lost: str = ""  # how its last replica was lost amid its answer
    is_complete: bool = False  # the whole answer has gone to the client
    duration_s: float = 0.0  # once it has ended

    @property
    def left_s(self) -> float:
        """Of its time; below 0 once that is over."""
        return self.limit_s - (perf_counter() - self.started)

    @property
    def cached_tokens(self) -> int | None:
        """Of the prompt, by the replica's word."""
        return None if self.report is None else self.report.cached_tokens

    @property
    def migrations(self) -> int:
        return 0 if self.stream is None else self.stream.migrations

    # What the router does with it

    def came_from(self, tenant: Tenant, limit_s: float) -> None:
        """Its headers were read."""
        self.tenant = tenant
        self.limit_s = limit_s

    def asks(self, order: Order) -> None:
        """Its body was read."""
        self.order = order
        for hear in self.audience.asked:
            hear(self, order)

    def waited_for_redis(self, waited_s: float) -> None:
        self.asked_s += waited_s

    def was_charged(self, charge: Charge) -> None:
        self.charge = charge
        self.asked_s += charge.asked_s
        self.keep_tail()

    def keep_tail(self) -> Tail:
        """The end of the answer, which is kept from now on."""
        if self.tail is None:
            self.tail = Tail()
        return self.tail

    def begins(self, stream: Stream | None) -> None:
        """Its answer begins, and is this stream where it can be migrated."""
        self.stream = stream

    def completed(self) -> None:
        """The whole answer went to the client."""
        self.is_complete = True

    def refused(self, status: int) -> None:
        """The router answers by itself."""
        self.status = status

    def close(self) -> None:
        """The request is over."""
        if self.stream is not None:
            self.stream.close()
        self.duration_s = perf_counter() - self.started
        for hear in self.audience.ended:
            hear(self)

    # What the core observes

    def placed(self, route: Route) -> None:
        self.route = route
        self.last_try = Try()
        self.tries += 1
        self.is_at_work = True
        for hear in self.audience.placed:
            hear(self, route)

    def not_sent(self, route: Route) -> None:
        self.is_at_work = False
        for hear in self.audience.not_sent:
            hear(self, route)

    def was_busy(self, route: Route) -> None:
        self.is_at_work = False
        for hear in self.audience.was_busy:
            hear(self, route)

    def failed(self, route: Route, error: str, how: Failure) -> None:
        if how.is_mid_stream:
            self.lost = f"replica {route.replica!r} was lost mid-stream: {error}"
        elif how is Failure.NO_ANSWER:  # a silent one may have worked for it
            self.is_at_work = False
        for hear in self.audience.failed:
            hear(self, route, error, how)

    def retried(self, route: Route, reason: str) -> None:
        for hear in self.audience.retried:
            hear(self, route, reason)

    def retry_refused(self, route: Route) -> None:
        for hear in self.audience.retry_refused:
            hear(self, route)

    def answered(self, route: Route, head: Head) -> None:
        assert self.last_try is not None
        self.last_try.status = head.status
        if not self.lost:  # else it is the rest of an answer
            self.status = head.status
            self.ttfb_s = perf_counter() - self.started
            self.has_answer = self.is_at_work = head.status < 400
        for hear in self.audience.answered:
            hear(self, route, head)

    def cached(self, route: Route, report: CacheReport, *, was_cut: bool) -> None:
        assert self.last_try is not None
        self.last_try.report = report
        if not self.lost:
            self.report = report
        for hear in self.audience.cached:
            hear(self, route, report, was_cut=was_cut)
