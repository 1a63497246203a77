"""A request at one replica after the other, until one answers.

A try that failed before its first byte is repeated elsewhere, within `max_tries` and the budget of
all retries. A stream that is lost later goes on at another replica where that can be right
(`migration`), found as the first one was.
"""

from collections.abc import Awaitable
from contextlib import nullcontext
from dataclasses import dataclass
from time import time_ns

from pando_router.admission.admission import Admission
from pando_router.bounded_log import BoundedLog
from pando_router.core.flight import Flight, Flights
from pando_router.core.retry_budget import RetryBudget
from pando_router.core.shortage import Shortage
from pando_router.dispatch import Dispatcher
from pando_router.earlier import Earlier
from pando_router.errors import ApiError, unavailable
from pando_router.exchange import Exchange
from pando_router.http.headers import forwarded
from pando_router.http.upstream import (
    Answer,
    NoConnectionError,
    ReplicaFailedError,
    ReplicaSilentError,
    Upstream,
)
from pando_router.live import Live
from pando_router.metrics import Metrics
from pando_router.migration.migrator import Migrator
from pando_router.recent import Recent
from pando_router.relay import Relay
from pando_router.route import Prompt, Route
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.salting import Salting
from pando_router.warming.warming import Warming

MID_STREAM = "mid_stream"
NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True)
class Busy:
    """A replica's 429: passed on where no other replica takes the request."""

    answer: Answer
    route: Route
    flight: Flight

    @property
    def retry_after_s(self) -> int:
        return self.answer.count(b"retry-after") or 1


@dataclass(frozen=True, slots=True)
class Failure:
    """What became of a try that another may follow."""

    reason: str  # "connection", the answer's status, MID_STREAM, or NOT_SENT
    message: str
    busy: Busy | None = None


class Tries:
    """Finds replicas, asks them, and has the first good answer relayed."""

    def __init__(
        self,
        live: Live,
        dispatcher: Dispatcher,
        admission: Admission,
        flights: Flights,
        upstream: Upstream,
        forwarding: Forwarding,
        salting: Salting,
        migrator: Migrator,
        relay: Relay,
        recent: Recent,
        earlier: Earlier,
        warming: Warming,
        metrics: Metrics,
        failed: BoundedLog,
    ) -> None:
        self._live = live
        self._dispatcher = dispatcher
        self._admission = admission
        self._flights = flights
        self._upstream = upstream
        self._forwarding = forwarding
        self._salting = salting
        self._migrator = migrator
        self._relay = relay
        self._recent = recent
        self._earlier = earlier
        self._warming = warming
        self._metrics = metrics
        self._failed = failed
        self._budget = RetryBudget(lambda: live.settings.retry_share)

    async def serve(self, exchange: Exchange, prompt: Prompt, body: bytes) -> None:
        """Raises ApiError where no replica answers, MigrationError where a stream cannot go on."""
        self._budget.request()
        failures: dict[str, str] = {}  # by incarnation, what happened
        failure: Failure | None = None  # of the last try
        retry_after: int | None = None  # seconds, the longest that a 429 asked for
        tries, allowed = 0, self._live.settings.max_tries
        try:
            while tries < allowed:
                is_held = failure is not None and failure.busy is not None
                route = await self._find(exchange, prompt, body, failures, wait=not is_held)
                if route is None:
                    break
                if failure is not None:
                    self._retries(route, failure)
                failure = await self._try(
                    exchange, prompt, body, route, is_last=tries + 1 >= allowed
                )
                if failure is None:
                    return
                if failure.reason == NOT_SENT:  # the dispatcher knows it as full
                    failure = None
                    continue
                tries += 1
                failures[route.incarnation] = failure.message
                if failure.busy is not None:
                    retry_after = max(retry_after or 1, failure.busy.retry_after_s)
                if failure.reason == MID_STREAM:
                    allowed = tries + self._live.settings.max_tries
                    exchange.deadline = None  # what it waits from here on is another wait
                elif not self._may_retry(route):
                    break
            if failure is not None and (busy := failure.busy) is not None:
                with exchange.incoming.until_gone():
                    await self._relay(exchange, busy.answer, busy.route, busy.flight, body)
                return
        finally:
            if failure is not None and failure.busy is not None:
                failure.busy.answer.close()
        raise _no_replica(prompt, failures, retry_after)

    async def _try(
        self, exchange: Exchange, prompt: Prompt, body: bytes, route: Route, *, is_last: bool
    ) -> Failure | None:
        """None where that was the end of the request."""
        exchange.route = route
        exchange.past = self._recent.placed(exchange.request_id, prompt, route)
        exchange.tries += 1
        # A placement is not interrupted, or its lease would stay; what follows is.
        with self._flights.open(prompt, route) as flight, exchange.incoming.until_gone():
            try:
                answer = await self._ask(exchange, route, body)
            except NoConnectionError as error:
                if exchange.ticket is not None:
                    exchange.ticket.refused()
                flight.not_sent()
                self._metrics.no_connection.labels(route.pool).inc()
                return Failure(NOT_SENT, f"{route.replica}: {error}")
            except ReplicaSilentError as error:
                # It has the request and may be at work on it: another would do the work twice.
                flight.failed_before_first_byte()
                exchange.log_failure(self._failed, route, error)
                raise ApiError(
                    504,
                    f"replica {route.replica!r} {error}",
                    kind="upstream_error",
                    code="replica_silent",
                ) from error
            except ReplicaFailedError as error:
                if exchange.ticket is not None:
                    exchange.ticket.refused()
                flight.failed_before_first_byte()
                exchange.log_failure(self._failed, route, error)
                if error.status is None:
                    exchange.found_dead(route.incarnation)
                return Failure(str(error.status or "connection"), f"{route.replica}: {error}")
            if answer.status == 429 and not is_last:
                if exchange.ticket is not None:
                    exchange.ticket.refused()
                busy = Busy(answer, route, flight)
                return Failure("429", f"{route.replica}: answered 429", busy)
            if answer.status < 400:
                path = exchange.incoming.path
                self._earlier.remember(path, prompt, route, answer.first_chunk)
                self._warming.seen(route.pool, path, body, prompt)
            try:
                lost = await self._relay(exchange, answer, route, flight, body)
            finally:
                answer.close()
        return None if lost is None else Failure(MID_STREAM, lost)

    async def _find(
        self, exchange: Exchange, prompt: Prompt, body: bytes, tried: dict[str, str], *, wait: bool
    ) -> Route | None:
        """A replica outside `tried`, in the request's turn; None where there is none.

        A request that has to wait for room may go again where it was refused: until then that
        replica may be well again, and the breaker knows where it is not.
        """
        admission, trace = self._admission, exchange.trace
        begun_ns = 0 if trace is None else time_ns()
        if not tried and admission.waiting and admission.queued(prompt):
            found: Route | Shortage = Shortage.FULL
        else:
            found = await self._dispatcher.place(prompt, tried)
        if trace is not None:
            trace.placed(begun_ns, found if isinstance(found, Route) else None)
        if isinstance(found, Route):
            return found
        if found is Shortage.NONE or not wait:
            return None
        with exchange.incoming.until_gone(), trace.part("queue") if trace else nullcontext():
            return await admission.wait(exchange, prompt, len(body), found)

    async def _ask(self, exchange: Exchange, route: Route, body: bytes) -> Answer:
        incoming = exchange.incoming
        headers = forwarded(incoming.headers, exchange.request_id)
        headers = self._forwarding(headers, exchange.tenant, route.url)
        self._migrator.asked(exchange.plan, headers)
        trace = exchange.trace
        if trace is not None:
            headers = trace.asks(route, headers)
        if exchange.stream is not None:

            def post(path: bytes, body: bytes) -> Awaitable[Answer]:
                return self._upstream.post(route.url, path, headers, body)

            body = await self._migrator.request(exchange.stream, post)
        body = self._salting(body, incoming.path, exchange.tenant, route.url)
        if exchange.ticket is not None:
            exchange.ticket.sent()
        answer = await self._upstream.post(route.url, incoming.target, headers, body)
        if trace is not None:
            trace.answered(answer.status)
        return answer

    def _may_retry(self, route: Route) -> bool:
        if self._budget.allows():
            return True
        self._metrics.retries_refused.labels(route.pool).inc()
        return False

    def _retries(self, route: Route, failure: Failure) -> None:
        self._budget.retry()
        self._metrics.retries.labels(route.pool, failure.reason).inc()
        if failure.busy is not None:
            failure.busy.answer.close()


def _no_replica(prompt: Prompt, failures: dict[str, str], retry_after: int | None) -> ApiError:
    """429 where a replica was only busy, which had the seconds of `retry_after` to say."""
    model = prompt.targets[0].model
    if failures:
        message = f"no replica could take the request ({'; '.join(failures.values())})"
        if retry_after is None:
            return unavailable(message, "replicas_failed")
        return ApiError(
            429,
            message,
            kind="rate_limit_error",
            code="replicas_failed",
            headers={"retry-after": str(retry_after)},
        )
    states = ", ".join(
        f"{member.beat.replica} is {member.state.value}"
        for target in prompt.targets
        for member in target.members
    )
    return unavailable(f"no replica of model {model!r} is ready: {states}", "no_ready_replica")
