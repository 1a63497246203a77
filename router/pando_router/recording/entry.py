"""One request that is recorded, from its beginning to its end."""

from collections.abc import Callable
from time import perf_counter

from pando_router.core.events import Listener
from pando_router.exchange import Exchange
from pando_router.recording.form import Outcome, Record
from pando_router.route import Prompt

_CLIENT_LEFT = 499


class Entry(Listener):
    __slots__ = ("_begun", "_exchange", "_expected_tokens", "_over", "_prompt", "_tail", "at")

    def __init__(
        self,
        exchange: Exchange,
        prompt: Prompt,
        at: float,
        expected_tokens: int,
        over: Callable[["Entry"], None],
    ) -> None:
        """`at`: now, Unix time; `expected_tokens` of an answer whose bound is not less; `over` is
        called when the request has ended."""
        self.at = at
        self._begun = perf_counter()
        self._exchange = exchange
        self._prompt = prompt
        self._expected_tokens = expected_tokens
        self._over = over
        self._tail = exchange.keep_tail()

    def ended(self) -> None:
        self._over(self)

    def record(self, oldest: float) -> Record:
        """With keys and session as they are: to be hidden before anybody sees them."""
        exchange, prompt, request = self._exchange, self._prompt, self._prompt.request
        route, usage = exchange.route, self._tail.usage()
        told = exchange.report.prompt_tokens if exchange.report is not None else None
        if told is None and usage is not None:
            told = usage.prompt
        cached = exchange.cached_tokens
        if cached is None and usage is not None:
            cached = usage.cached
        first_s = None
        if exchange.ttfb_s is not None:
            first_s = exchange.started + exchange.ttfb_s - self._begun
        target = prompt.targets[0]
        return Record(
            at=self.at,
            oldest=oldest,
            pool=route.pool if route is not None else "",
            model=target.adapter or target.model,
            prompt_bytes=len(request.prefix) + request.extra_bytes,
            prompt_tokens=told or request.prompt_tokens(target.bytes_per_token),
            keys=prompt.keys,
            expected_tokens=request.output_tokens(self._expected_tokens),
            output_tokens=self._tail.events if usage is None else usage.output or 0,
            outcome=_outcome(exchange.status, done=exchange.is_complete),
            status=exchange.status,
            first_s=None if first_s is None else round(first_s, 6),
            total_s=round(perf_counter() - self._begun, 6),
            matched_tokens=route.matched_tokens if route is not None else 0,
            cached_tokens=cached,
            tries=exchange.tries,
            replica=route.replica if route is not None else "",
            session=prompt.steering.session.decode("latin-1"),
        )


def _outcome(status: int, *, done: bool) -> Outcome:
    if status == _CLIENT_LEFT:
        return Outcome.LEFT
    if status in (429, 503):
        return Outcome.REFUSED
    if 400 <= status < 500:
        return Outcome.INVALID
    return Outcome.FINISHED if done and status < 400 else Outcome.FAILED
