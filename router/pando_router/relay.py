"""A replica's answer to the client: bytes out as they come, and what its head says written down."""

from pando_fleet import misfits
from pando_router.bounded_log import BoundedLog
from pando_router.core.flight import CacheReport, Flight
from pando_router.exchange import Exchange
from pando_router.http.upstream import Answer, ReplicaFailedError, ReplicaSilentError
from pando_router.metrics import Metrics
from pando_router.migration.migrator import Migrator
from pando_router.route import Route

_CACHED_TOKENS, _PROMPT_TOKENS = b"x-pando-cached-tokens", b"x-pando-prompt-tokens"


class Relay:
    """Called with an answer that has its first byte."""

    def __init__(self, migrator: Migrator, metrics: Metrics, failed: BoundedLog) -> None:
        self._migrator = migrator
        self._metrics = metrics
        self._failed = failed

    async def __call__(
        self, exchange: Exchange, answer: Answer, route: Route, flight: Flight, body: bytes
    ) -> str | None:
        """None where that is the end of it; how the replica was lost where another is to go on.

        Raises MigrationError where none can.
        """
        report = _cache_report(answer, route.replica)
        if answer.status < 400:
            flight.first_byte(report, complete=answer.complete)
        else:
            flight.refused(answer.status)
        if exchange.stream is None:
            self._begin(exchange, answer, route, report, body)
        else:
            flight.observation = None  # what follows is no answer to the prompt alone
            self._migrator.goes_on(exchange.stream, answer, exchange.request_id, route.replica)
        try:
            await self._pass_on(exchange, answer, flight)
            return None
        except (ReplicaFailedError, ReplicaSilentError) as error:
            if isinstance(error, ReplicaFailedError):
                flight.failed_mid_stream()
            exchange.log_failure(self._failed, route, error)
            exchange.found_dead(route.incarnation)
            exchange.lost = f"replica {route.replica!r} was lost mid-stream: {error}"
        if (stream := exchange.stream) is not None:
            if self._migrator.lost(stream, exchange.request_id):
                return exchange.lost
            exchange.incoming.end(stream.ending)
        elif answer.is_event_stream:
            break_off(exchange)
        # Anything else is left unfinished: the server cuts the connection, so that the client
        # cannot take a part for the whole.
        return None

    async def _pass_on(self, exchange: Exchange, answer: Answer, flight: Flight) -> None:
        """Raises ReplicaFailedError, ReplicaSilentError where the answer ends before its end."""
        incoming, stream, ticket = exchange.incoming, exchange.stream, exchange.ticket
        observation, entry = flight.observation, exchange.entry
        chunk = answer.first_chunk
        while True:
            if observation is not None:
                observation.add(chunk)
            if entry is not None:
                entry.add(chunk)
            if stream is not None:
                chunk = stream.pass_on(chunk)
            if ticket:
                ticket.add(chunk)
            if stream is not None and stream.failed:
                await incoming.write(chunk)
                raise ReplicaFailedError("it can serve no more")
            if answer.complete:
                incoming.end(chunk if stream is None else chunk + stream.end())
                if observation is not None:
                    exchange.reported(flight.done())
                if entry is not None:
                    entry.done = True
                return
            await incoming.write(chunk)  # with nothing in it the head goes out at least
            chunk = await answer.read()

    def _begin(
        self,
        exchange: Exchange,
        answer: Answer,
        route: Route,
        report: CacheReport | None,
        body: bytes,
    ) -> None:
        """The answer's head to the client."""
        exchange.status = answer.status
        exchange.cached_tokens = None
        if exchange.past is not None:
            exchange.past.status = answer.status
        exchange.reported(report)
        exchange.ttfb_s = exchange.elapsed_s
        kind = "stream" if answer.is_event_stream else "whole"
        self._metrics.ttfb[route.pool, kind].observe(exchange.ttfb_s)
        request_id = exchange.request_id.encode()
        headers = exchange.endpoint.errors.named(answer.headers(), request_id)
        headers += (
            (b"x-request-id", request_id),
            (b"x-pando-replica", route.replica.encode()),
            (b"x-pando-matched-tokens", b"%d" % route.matched_tokens),
        )
        if ticket := exchange.ticket:
            headers = ticket.answered(answer.status, headers)
        exchange.stream = self._migrator.stream(exchange.plan, body, answer)
        exchange.incoming.start(answer.status, headers)


def break_off(exchange: Exchange, why: str = "") -> None:
    """Ends a stream that has begun with an error event."""
    message = exchange.lost
    if why:
        message += f"; it cannot go on at another one: {why}"
    exchange.incoming.end(exchange.endpoint.errors.stream_event(message, exchange.request_id))


def _cache_report(answer: Answer, replica: str) -> CacheReport | None:
    """None from engines that do not tell, and where what is told cannot be."""
    cached, prompt = answer.count(_CACHED_TOKENS), answer.count(_PROMPT_TOKENS)
    if cached is not None and prompt is not None and cached <= prompt:
        return CacheReport(cached, prompt)
    if told := answer.header(_CACHED_TOKENS):
        of = answer.header(_PROMPT_TOKENS)
        misfits.skip("header", replica, f"cached tokens {told!r} of {of!r} prompt tokens")
    return None
