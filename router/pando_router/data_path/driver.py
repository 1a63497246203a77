"""Drives a request's `core.Tries` with asyncio: places it, sends it, relays its answer.

A try that fails before its first byte is repeated at another replica. A stream that is lost later
continues at another replica if that is exact (`migration`). The core decides each next action.
"""

from collections.abc import Collection
from contextlib import nullcontext
from time import time_ns

from msgspec.structs import replace

from pando_fleet.redis import misfits
from pando_router.admission.admission import Admission
from pando_router.configuration.live import Live
from pando_router.core.events import CacheReport, Head
from pando_router.core.flight import Flight, Flights
from pando_router.core.route import Route, Shortage
from pando_router.core.tries import Action, Place, Refuse, Relay, Send, Tries, Wait, Why
from pando_router.data_path.relay import Relaying
from pando_router.data_path.sending import Sender
from pando_router.errors import ApiError, unavailable
from pando_router.exchange.exchange import Exchange, Order
from pando_router.fleet_view.snapshot import LOOKS_READY_S
from pando_router.http.answer import (
    Answer,
    NoConnectionError,
    ReplicaFailedError,
    ReplicaSilentError,
)
from pando_router.placing.dispatch import Dispatcher
from pando_router.placing.route import Prompt
from pando_router.telemetry.tracing import RequestTrace

_CACHED_TOKENS, _PROMPT_TOKENS = b"x-pando-cached-tokens", b"x-pando-prompt-tokens"


class Driver:
    def __init__(
        self,
        live: Live,
        flights: Flights,
        dispatcher: Dispatcher,
        admission: Admission,
        sender: Sender,
        relay: Relaying,
    ) -> None:
        self._live = live
        self._flights = flights
        self._dispatcher = dispatcher
        self._admission = admission
        self._sender = sender
        self._relay = relay

    async def serve(self, exchange: Exchange, order: Order) -> None:
        """Raises ApiError if no replica answers, MigrationError if a stream cannot continue."""
        prompt, limit_s = order.prompt, self._live.settings.placement_timeout
        first = prompt  # for the first placement, which shares its time limit with earlier calls
        if exchange.redis_s:
            first = replace(prompt, within_s=max(0.0, limit_s - exchange.redis_s))
        tries = Tries(
            self._flights,
            exchange,
            max_tries=self._live.settings.max_tries,
            looks_ready_s=LOOKS_READY_S,
        )
        action: Action | None = tries.arrived(overtakes=self._admission.is_overtaken_by(prompt))
        busy: Answer | None = None  # a 429, relayed if no other replica takes the request
        try:
            while action is not None:
                # No patterns for an action's fields: each costs as much as a call.
                match action:
                    case Place():
                        # Outside `until_gone`: an interrupted placement would leave its lease.
                        if exchange.trace is None:
                            found = await self._dispatcher.place(first, action.barred)
                        else:
                            found = await self._place_traced(exchange.trace, first, action.barred)
                        first = prompt
                        action = tries.placed(found)
                    case Send():
                        if busy is not None:
                            busy.close()
                        route = action.flight.route
                        action, busy = await self._send(exchange, tries, order, route)
                    case Wait():
                        flight = await self._wait(exchange, tries, order, action.shortage)
                        action = tries.placed(flight)
                    case Relay():
                        assert busy is not None
                        with exchange.incoming.until_gone:
                            action = await self._relay(exchange, tries, busy, order)
                    case Refuse():
                        raise _refusal(action, prompt)
        finally:
            tries.close()
            if busy is not None:
                busy.close()

    async def _place_traced(
        self, trace: RequestTrace, prompt: Prompt, barred: Collection[str]
    ) -> Flight | Shortage:
        begun_ns = time_ns()
        found = await self._dispatcher.place(prompt, barred)
        trace.placement(begun_ns, found.route if isinstance(found, Flight) else None)
        return found

    async def _wait(
        self, exchange: Exchange, tries: Tries, order: Order, shortage: Shortage
    ) -> Flight:
        trace = exchange.trace
        with exchange.incoming.until_gone, trace.part("queue") if trace else nullcontext():
            return await self._admission.wait(exchange, tries, order, shortage)

    async def _send(
        self, exchange: Exchange, tries: Tries, order: Order, route: Route
    ) -> tuple[Action | None, Answer | None]:
        """Returns the next action, None at the end, and a 429 that may have to be relayed."""
        with exchange.incoming.until_gone:
            try:
                answer = await self._sender(exchange, order, route)
            except NoConnectionError:
                return tries.not_sent(), None
            except ReplicaSilentError as error:
                return tries.silent(str(error)), None
            except ReplicaFailedError as error:
                return tries.failed(str(error), error.status), None
            action = tries.answered(_head(answer, route))
            if not isinstance(action, Relay):
                return action, answer
            try:
                return await self._relay(exchange, tries, answer, order), None
            finally:
                answer.close()


def _head(answer: Answer, route: Route) -> Head:
    return Head(
        answer.status,
        _report(answer, route.replica),
        answer.complete,
        answer.is_event_stream,
        (answer.count(b"retry-after") or 1) if answer.status == 429 else 1,
        answer.first_chunk,
    )


def _report(answer: Answer, replica: str) -> CacheReport | None:
    """The replica's cache report; None if it sent none, or impossible numbers."""
    cached, prompt = answer.count(_CACHED_TOKENS), answer.count(_PROMPT_TOKENS)
    if cached is not None and prompt is not None and cached <= prompt:
        return CacheReport(cached, prompt)
    if reported := answer.header(_CACHED_TOKENS):
        of = answer.header(_PROMPT_TOKENS)
        misfits.skip("header", replica, f"cached tokens {reported!r} of {of!r} prompt tokens")
    return None


def _refusal(refuse: Refuse, prompt: Prompt) -> ApiError:
    match refuse.why:
        case Why.SILENT:
            return ApiError(504, refuse.message, kind="upstream_error", code="replica_silent")
        case Why.FAILED:
            message = f"no replica could take the request ({refuse.message})"
            return unavailable(message, "replicas_failed")
        case Why.BUSY:
            return ApiError(
                429,
                f"no replica could take the request ({refuse.message})",
                kind="rate_limit_error",
                code="replicas_failed",
                headers={"retry-after": str(refuse.retry_after_s)},
            )
        case Why.NO_REPLICA:
            states = ", ".join(
                f"{member.beat.replica} is {member.state.value}"
                for target in prompt.targets
                for member in target.members
            )
            model = prompt.targets[0].model
            message = f"no replica of model {model!r} is ready: {states}"
            return unavailable(message, "no_ready_replica")
