"""Relays a replica's answer to the client: its head, then its bytes as they arrive."""

from pando_router.core.events import CacheReport
from pando_router.core.tries import Place, Tries
from pando_router.exchange.exchange import Exchange, Order
from pando_router.exchange.tail import Tail
from pando_router.http.answer import Answer, ReplicaFailedError, ReplicaSilentError
from pando_router.migration.migrator import Migrator


class Relaying:
    """Relays answers whose first byte has arrived."""

    def __init__(self, migrator: Migrator) -> None:
        self._migrator = migrator

    async def __call__(
        self, exchange: Exchange, tries: Tries, answer: Answer, order: Order
    ) -> Place | None:
        """Returns None at the end of the request; the next action where another replica goes on.

        Raises MigrationError where none can.
        """
        self._begin(exchange, answer, order)
        incoming, stream, tail = exchange.incoming, exchange.stream, exchange.tail
        chunk = answer.first_chunk
        # One coroutine, because each event of a stream passes through all nested ones.
        try:
            while True:
                is_last = answer.complete
                if stream is not None:
                    chunk = stream.pass_on(chunk)
                    if stream.failed:
                        is_last = False
                    elif is_last:
                        chunk += stream.end()
                if tail is not None:
                    tail.add(chunk)
                elif exchange.keeps_tail:
                    tail = exchange.tail_began(chunk)
                if is_last:
                    incoming.end(chunk)
                    break
                # An empty chunk still sends the head.
                if not incoming.write(chunk):
                    await incoming.writable()
                if stream is not None and stream.failed:
                    raise ReplicaFailedError("reported that it can no longer serve")
                chunk = await answer.read()
        except (ReplicaFailedError, ReplicaSilentError) as error:
            return self._lost(exchange, tries, answer, error)
        exchange.completed()
        if tail is not None and exchange.wants_usage:
            _report_late(exchange, tries, tail)
        return None

    def _lost(
        self,
        exchange: Exchange,
        tries: Tries,
        answer: Answer,
        error: ReplicaFailedError | ReplicaSilentError,
    ) -> Place | None:
        """The answer was lost: has another replica continue it, or ends it."""
        tries.lost(str(error), stalled=isinstance(error, ReplicaSilentError))
        if (stream := exchange.stream) is not None:
            if self._migrator.lost(stream, exchange.request_id):
                return tries.goes_on()
            exchange.incoming.end(stream.ending)
        elif answer.is_event_stream:
            break_off(exchange)
        # Any other answer stays unfinished: the server cuts the connection, so that the client
        # cannot mistake a part for the whole.
        return None

    def _begin(self, exchange: Exchange, answer: Answer, order: Order) -> None:
        """Sends the answer's head to the client, unless the answer continues a stream."""
        route = exchange.route
        assert route is not None
        if exchange.stream is not None:
            self._migrator.goes_on(exchange.stream, answer, exchange.request_id, route.replica)
            return
        request_id = exchange.request_id.encode()
        headers = exchange.endpoint.errors.named(answer.headers(), request_id)
        headers += (
            (b"x-request-id", request_id),
            (b"x-pando-replica", route.replica.encode()),
            (b"x-pando-matched-tokens", b"%d" % route.matched_tokens),
        )
        if (charge := exchange.charge) is not None and charge.headers:
            headers = [one for one in headers if not one[0].startswith(b"x-ratelimit-")]
            headers += charge.headers
        if order.plan is not None:
            exchange.answer_began(self._migrator.stream(order.plan, order.body, answer))
        exchange.incoming.start(answer.status, headers, answer.length)


def break_off(exchange: Exchange, why: str = "") -> None:
    """Ends a stream that has started, with an error event."""
    message = exchange.lost
    if why:
        message += f"; the stream cannot continue at another replica: {why}"
    exchange.incoming.end(exchange.endpoint.errors.stream_event(message, exchange.request_id))


def _report_late(exchange: Exchange, tries: Tries, tail: Tail) -> None:
    """Reads the cache report at the answer's end, if none came with the first byte."""
    if exchange.report is not None or exchange.lost or exchange.status >= 400:
        return
    usage = tail.usage()
    if usage is not None and usage.prompt is not None and usage.cached is not None:
        tries.reported(CacheReport(usage.cached, usage.prompt))
