"""Makes the record of a request."""

from pando_router.exchange.exchange import Exchange
from pando_router.recording.form import Outcome, Record

_CLIENT_LEFT = 499


def record_of(
    exchange: Exchange, at: float, now: float, oldest: float, expected_tokens: int
) -> Record:
    """The record with the keys and session not yet hidden: never write it like that.

    Args:
        at: Unix time at which the body was read.
        oldest: the same for the oldest request that still runs.
        expected_tokens: the expected answer length, unless the request's bound is lower.
    """
    order, tail = exchange.order, exchange.tail
    assert order is not None and tail is not None
    prompt, request, route, usage = order.prompt, order.prompt.request, exchange.route, tail.usage()
    reported = exchange.report.prompt_tokens if exchange.report is not None else None
    if reported is None and usage is not None:
        reported = usage.prompt
    cached = exchange.cached_tokens
    if cached is None and usage is not None:
        cached = usage.cached
    total_s = now - at
    first_s = None
    if exchange.ttfb_s is not None:
        first_s = total_s - (exchange.duration_s - exchange.ttfb_s)
    target = prompt.targets[0]
    return Record(
        at=at,
        oldest=oldest,
        pool=route.pool if route is not None else "",
        model=target.adapter or target.model,
        base=target.model if target.adapter else "",
        prompt_bytes=len(request.prefix) + request.cut_bytes + request.extra_bytes,
        prompt_tokens=reported or request.prompt_tokens(target.bytes_per_token),
        keys=prompt.keys,
        expected_tokens=request.output_tokens(expected_tokens),
        output_tokens=tail.events if usage is None else usage.output or 0,
        outcome=_outcome(exchange.status, done=exchange.is_complete),
        status=exchange.status,
        first_s=None if first_s is None else round(first_s, 6),
        total_s=round(total_s, 6),
        matched_tokens=route.matched_tokens if route is not None else 0,
        cached_tokens=cached,
        tries=exchange.tries,
        replica=route.replica if route is not None else "",
        session=prompt.steering.session.decode("latin-1"),
        stream=request.stream,
    )


def _outcome(status: int, *, done: bool) -> Outcome:
    if status == _CLIENT_LEFT:
        return Outcome.LEFT
    if status in (429, 503):
        return Outcome.REFUSED
    if 400 <= status < 500:
        return Outcome.INVALID
    return Outcome.FINISHED if done and status < 400 else Outcome.FAILED
