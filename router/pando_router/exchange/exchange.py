"""`Exchange`: the record of one request and its answer on the data path.

Only its own methods change its fields; each is named after an event, records it, and then notifies
the listeners, which are the same for all requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, Concatenate, ParamSpec

import msgspec

from pando_fleet.http.server.incoming import Incoming
from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.core.events import CacheReport, Failure, Head, Observer
from pando_router.core.route import Route
from pando_router.endpoints import Endpoint
from pando_router.exchange.past import Try
from pando_router.exchange.tail import Tail
from pando_router.migration.plan import Plan
from pando_router.migration.stream import Stream
from pando_router.placing.route import Prompt
from pando_router.telemetry.tracing import RequestTrace
from pando_router.tenants.charge import Charge

P = ParamSpec("P")


class Listener:
    """Receives the events of all requests; a subclass overrides those that it needs.

    A request's events arrive in the order in which they happen. `ended` arrives once, last, and is
    the only event of a request whose body was never read.
    """

    __slots__ = ()

    def body_read(self, exchange: "Exchange", order: "Order") -> None:
        """The request's body was read and parsed."""

    # The events of `Observer`

    def placed(self, exchange: "Exchange", route: Route) -> None: ...

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
    """The listeners by the events that they override, found once instead of for each request."""

    def __init__(self, *listeners: Listener) -> None:
        def of(event: Callable[Concatenate[Listener, P], None]) -> tuple[Callable[P, None], ...]:
            name = event.__name__
            receivers = (one for one in listeners if getattr(type(one), name) is not event)
            return tuple(getattr(one, name) for one in receivers)

        self.body_read = of(Listener.body_read)
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
    """A parsed request, made once from its body."""

    prompt: Prompt
    body: bytes  # for the replica
    plan: Plan | None = None  # for migration


@dataclass(slots=True, eq=False)  # a msgspec.Struct is faster to create but slower to change
class Exchange(Observer):
    incoming: Incoming
    endpoint: Endpoint[Any]
    request_id: str
    audience: Audience
    trace: RequestTrace | None = None  # if traces are on
    started: float = field(default_factory=perf_counter)

    # The request, as soon as it is read.
    tenant: Tenant = OPEN
    limit_s: float = inf  # from `started` to the end of its answer
    order: Order | None = None
    charge: Charge | None = None  # if the tenant's use is counted
    keeps_tail: bool = False  # a listener reads the answer's end
    tail: Tail | None = None  # if it is kept, from the first chunk on
    wants_usage: bool = False  # a listener needs the answer's usage as soon as it ends

    redis_s: float = 0.0  # time spent on Redis before placement

    # Its progress.
    status: int = 0
    route: Route | None = None  # of the last try
    last_try: Try | None = None
    tries: int = 0
    is_at_work: bool = False  # a replica has it and may be computing
    has_answer: bool = False  # a successful answer has begun
    ttfb_s: float | None = None
    report: CacheReport | None = None
    stream: Stream | None = None  # the sent part of an answer that can be migrated
    lost: str = ""  # how its last replica was lost mid-answer
    is_complete: bool = False  # the whole answer was sent to the client
    duration_s: float = 0.0  # set at its end

    @property
    def left_s(self) -> float:
        """Seconds until its deadline; negative after it."""
        return self.limit_s - (perf_counter() - self.started)

    @property
    def cached_tokens(self) -> int | None:
        """Cached prompt tokens, as the replica reported them."""
        return None if self.report is None else self.report.cached_tokens

    @property
    def migrations(self) -> int:
        return 0 if self.stream is None else self.stream.migrations

    # Events of the data path

    def headers_read(self, tenant: Tenant, limit_s: float) -> None:
        """Its headers were read."""
        self.tenant = tenant
        self.limit_s = limit_s

    def body_read(self, order: Order) -> None:
        """Its body was read and parsed."""
        self.order = order
        for notify in self.audience.body_read:
            notify(self, order)

    def waited_for_redis(self, waited_s: float) -> None:
        self.redis_s += waited_s

    def charged(self, charge: Charge) -> None:
        self.charge = charge
        self.redis_s += charge.redis_s
        self.read_usage()

    def keep_tail(self) -> None:
        """Keeps the end of the answer."""
        self.keeps_tail = True

    def read_usage(self) -> None:
        """Reads the answer's usage as soon as it ends."""
        self.keeps_tail = self.wants_usage = True

    def tail_began(self, chunk: bytes) -> Tail:
        self.tail = Tail(chunk)
        return self.tail

    def answer_began(self, stream: Stream | None) -> None:
        """Its answer began; `stream` is given if it can be migrated."""
        self.stream = stream

    def completed(self) -> None:
        """The whole answer was sent to the client."""
        self.is_complete = True

    def refused(self, status: int) -> None:
        """The router answers with an error of its own."""
        self.status = status

    def close(self) -> None:
        """The request is over."""
        if self.stream is not None:
            self.stream.close()
        self.duration_s = perf_counter() - self.started
        for notify in self.audience.ended:
            notify(self)

    # Events of the core

    def placed(self, route: Route) -> None:
        self.route = route
        self.last_try = Try()
        self.tries += 1
        self.is_at_work = True
        for notify in self.audience.placed:
            notify(self, route)

    def not_sent(self, route: Route) -> None:
        self.is_at_work = False
        for notify in self.audience.not_sent:
            notify(self, route)

    def was_busy(self, route: Route) -> None:
        self.is_at_work = False
        for notify in self.audience.was_busy:
            notify(self, route)

    def failed(self, route: Route, error: str, how: Failure) -> None:
        if how.is_mid_stream:
            self.lost = f"replica {route.replica!r} was lost mid-stream: {error}"
        elif how is Failure.NO_ANSWER:  # a silent replica may still be computing
            self.is_at_work = False
        for notify in self.audience.failed:
            notify(self, route, error, how)

    def retried(self, route: Route, reason: str) -> None:
        for notify in self.audience.retried:
            notify(self, route, reason)

    def retry_refused(self, route: Route) -> None:
        for notify in self.audience.retry_refused:
            notify(self, route)

    def answered(self, route: Route, head: Head) -> None:
        assert self.last_try is not None
        self.last_try.status = head.status
        if not self.lost:  # else it continues an earlier answer
            self.status = head.status
            self.ttfb_s = perf_counter() - self.started
            self.has_answer = self.is_at_work = head.status < 400
        for notify in self.audience.answered:
            notify(self, route, head)

    def cached(self, route: Route, report: CacheReport, *, was_cut: bool) -> None:
        assert self.last_try is not None
        self.last_try.report = report
        if not self.lost:
            self.report = report
        for notify in self.audience.cached:
            notify(self, route, report, was_cut=was_cut)
