"""One request on its way through the data path: what every part of it reads and writes down."""

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pando_fleet.registry import FRESH_MS
from pando_router.bounded_log import BoundedLog
from pando_router.core.flight import CacheReport
from pando_router.endpoints import Endpoint
from pando_router.fleet_view import GRACE_S
from pando_router.http.incoming import Incoming
from pando_router.migration.plan import Plan
from pando_router.migration.stream import Stream
from pando_router.past import Past
from pando_router.route import Route
from pando_router.tenants.limiter import Ticket
from pando_router.tenants.tenant import OPEN, Tenant
from pando_router.tracing import RequestTrace

if TYPE_CHECKING:
    from pando_router.recording.entry import Entry

LOOKS_READY_S = FRESH_MS / 1000 + GRACE_S
"""A replica that has died is placed on for so long, see `fleet_view`."""


@dataclass(slots=True)
class Exchange:
    """One request and what becomes of it; what the access log says."""

    incoming: Incoming
    endpoint: Endpoint[Any]
    request_id: str
    started: float = field(default_factory=perf_counter)
    status: int = 0
    route: Route | None = None
    tries: int = 0
    deadline: float | None = None  # of waits in queues, as `started`; from the first wait on
    dead: dict[str, float] = field(default_factory=dict)  # incarnations, see `found_dead`
    ttfb_s: float | None = None
    cached_tokens: int | None = None
    tenant: Tenant = OPEN
    past: Past | None = None  # its last try, to be explained later
    ticket: Ticket | None = None  # of the tenant's rate limits
    plan: Plan | None = None  # for the loss of its replica
    stream: Stream | None = None  # what is out of an answer that can be migrated
    lost: str = ""  # how its last replica was lost
    trace: RequestTrace | None = None  # where traces are wanted
    entry: "Entry | None" = None  # where requests are recorded

    @property
    def elapsed_s(self) -> float:
        return perf_counter() - self.started

    def found_dead(self, incarnation: str) -> None:
        """Its connection broke: this request waits for the others, as long as a heartbeat from
        before may make it look ready."""
        self.dead[incarnation] = perf_counter() + LOOKS_READY_S

    def dead_now(self) -> list[str]:
        now = perf_counter()
        return [incarnation for incarnation, until in self.dead.items() if now < until]

    def reported(self, report: CacheReport | None) -> None:
        """What the replica said of its cache, with the first byte or at the end."""
        if report is None:
            return
        self.cached_tokens = report.cached_tokens
        if (past := self.past) is not None:
            past.cached_tokens, past.prompt_tokens = report.cached_tokens, report.prompt_tokens

    def log_failure(self, log: BoundedLog, route: Route, error: Exception) -> None:
        if self.trace is not None:
            self.trace.failed(str(error))
        log(
            route.incarnation,
            request_id=self.request_id,
            pool=route.pool,
            replica=route.replica,
            error=str(error),
            answered=self.ttfb_s is not None,
        )
