"""One request that is recorded, from its beginning to its end."""

from time import perf_counter

from pando_router.exchange import Exchange
from pando_router.recording.form import Outcome, Record
from pando_router.route import Prompt
from pando_router.tenants.usage import Tail

_CLIENT_LEFT = 499


class Entry:
    """`add` each piece of its answer, set `done` at the answer's end."""

    __slots__ = ("_at", "_begun", "_expected_tokens", "_prompt", "_tail", "done")

    def __init__(self, prompt: Prompt, at: float, expected_tokens: int) -> None:
        """`at`: now, Unix time; `expected_tokens` of an answer whose bound is not less."""
        self._at = at
        self._begun = perf_counter()
        self._prompt = prompt
        self._expected_tokens = expected_tokens
        self._tail = Tail()
        self.done = False

    @property
    def at(self) -> float:
        return self._at

    def add(self, chunk: bytes) -> None:
        self._tail.add(chunk)

    def record(self, exchange: Exchange, oldest: float) -> Record:
        """With keys and session as they are: to be hidden before anybody sees them."""
        prompt, request, route = self._prompt, self._prompt.request, exchange.route
        usage = self._tail.usage()
        told = exchange.past.prompt_tokens if exchange.past is not None else None
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
            at=self._at,
            oldest=oldest,
            pool=route.pool if route is not None else "",
            model=target.adapter or target.model,
            prompt_bytes=len(request.prefix) + request.extra_bytes,
            prompt_tokens=told or request.prompt_tokens(target.bytes_per_token),
            keys=prompt.keys,
            expected_tokens=request.output_tokens(self._expected_tokens),
            output_tokens=self._tail.events if usage is None else usage.output or 0,
            outcome=_outcome(exchange.status, done=self.done),
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
