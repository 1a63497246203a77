"""Makes the record of a request."""

from collections.abc import Sequence

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.exchange.exchange import Exchange
from pando_router.recording.disguise import Disguise
from pando_router.recording.form import HIDDEN_BYTES, Outcome, Record

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
    prompt, route, usage, report = order.prompt, exchange.route, tail.usage(), exchange.report
    request, target, session = prompt.request, prompt.targets[0], prompt.steering.session
    reported = cached = None
    if report is not None:
        reported, cached = report.prompt_tokens, report.cached_tokens
    if usage is not None:
        reported = usage.prompt if reported is None else reported
        cached = usage.cached if cached is None else cached
    total_s = now - at
    ttfb_s = exchange.ttfb_s
    # By position, in the order of the fields: by name it would take six times as long.
    return Record(
        at,
        oldest,
        target.adapter or target.model,
        len(request.prefix) + request.cut_bytes + request.extra_bytes,
        reported or request.prompt_tokens(target.bytes_per_token),
        request.output_tokens(expected_tokens),
        _outcome(exchange.status, done=exchange.is_complete),
        exchange.status,
        total_s,
        "" if route is None else route.pool,
        target.model if target.adapter else "",
        prompt.keys,
        tail.events if usage is None else usage.output or 0,
        None if ttfb_s is None else total_s - (exchange.duration_s - ttfb_s),
        0 if route is None else route.matched_tokens,
        cached,
        exchange.tries,
        "" if route is None else route.replica,
        session.decode("latin-1") if session else "",
        request.stream,
    )


def hide(records: Sequence[Record], disguise: Disguise) -> None:
    """Hides the records' keys, all in one call, and their sessions."""
    hidden = disguise.keys(b"".join([record.keys for record in records]))
    start = 0
    for record in records:
        end = start + len(record.keys) // KEY_BYTES * HIDDEN_BYTES
        record.keys = hidden[start:end]
        start = end
        if record.session:
            record.session = disguise.name(record.session)


def _outcome(status: int, *, done: bool) -> Outcome:
    if status < 400:
        return Outcome.FINISHED if done else Outcome.FAILED
    if status == _CLIENT_LEFT:
        return Outcome.LEFT
    if status in (429, 503):
        return Outcome.REFUSED
    return Outcome.INVALID if status < 500 else Outcome.FAILED
