"""`Exchange`: one request on its way through the data path, and what becomes of it.

It listens to the request's events like everybody else, and it alone writes down what happened;
other listeners, who come after it, read it.
"""

from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any

from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.core.events import CacheReport, Failure, Head, Listener
from pando_router.core.route import Route
from pando_router.endpoints import Endpoint
from pando_router.http.headers import Headers
from pando_router.http.incoming import Incoming
from pando_router.migration.plan import Plan
from pando_router.migration.stream import Stream
from pando_router.tail import Tail
from pando_router.tracing import RequestTrace


@dataclass(slots=True)
class Exchange(Listener):
    incoming: Incoming
    endpoint: Endpoint[Any]
    request_id: str
    trace: RequestTrace | None = None  # where traces are wanted
    started: float = field(default_factory=perf_counter)
    listeners: list[Listener] = field(default_factory=list)  # this one first

    # What the request asks for, once that is known.
    limit_s: float = inf  # from `started` to the end of its answer
    tenant: Tenant = OPEN
    plan: Plan | None = None  # for the loss of its replica
    rate_headers: Headers = field(default_factory=list)  # the tenant's limits, for the answer
    tail: Tail | None = None  # the answer's end, where a listener wants to read it

    # What has become of it.
    status: int = 0
    route: Route | None = None  # of the last try
    tries: int = 0
    ttfb_s: float | None = None
    report: CacheReport | None = None
    stream: Stream | None = None  # what is out of an answer that can be migrated
    lost: str = ""  # how its last replica was lost amid its answer
    is_complete: bool = False  # the whole answer has gone to the client

    def __post_init__(self) -> None:
        self.listeners.append(self)

    def keep_tail(self) -> Tail:
        """The end of the answer, which is kept from now on."""
        if self.tail is None:
            self.tail = Tail()
        return self.tail

    @property
    def elapsed_s(self) -> float:
        return perf_counter() - self.started

    @property
    def left_s(self) -> float:
        """Of its time; below 0 once that is over."""
        return self.limit_s - self.elapsed_s

    @property
    def cached_tokens(self) -> int | None:
        """Of the prompt, by the replica's word."""
        return None if self.report is None else self.report.cached_tokens

    @property
    def migrations(self) -> int:
        return 0 if self.stream is None else self.stream.migrations

    def placed(self, route: Route) -> None:
        self.route = route
        self.tries += 1

    def failed(self, route: Route, error: str, how: Failure) -> None:
        if how.is_mid_stream:
            self.lost = f"replica {route.replica!r} was lost mid-stream: {error}"

    def answered(self, route: Route, head: Head) -> None:
        if self.lost:  # what goes on there is the rest of an answer
            return
        self.status = head.status
        self.ttfb_s = self.elapsed_s

    def cached(self, route: Route, report: CacheReport, *, was_cut: bool) -> None:
        if not self.lost:
            self.report = report

    def refused(self, status: int) -> None:
        """The router answers by itself."""
        self.status = status

    def ended(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def close(self) -> None:
        """The request is over: tells all listeners, and lets them go.

        They refer to the exchange, so that each request would leave a cycle for the collector.
        """
        for listener in self.listeners:
            listener.ended()
        self.listeners.clear()
