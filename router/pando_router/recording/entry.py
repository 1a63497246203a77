"""Makes the record of a request."""

from collections.abc import Sequence

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.exchange.exchange import Exchange
from pando_router.recording.disguise import Disguise
from pando_router.recording.form import HIDDEN_BYTES, Outcome, Record

_CLIENT_LEFT = 499
_FINISHED = Outcome.FINISHED  # to get a member from its class takes a call in Python 3.11


def record_of(
    exchange: Exchange, at: float, now: float, oldest: float, expected_tokens: int
) -> Record:
    """The record with the keys and session not yet hidden: never write it like that.

    Args:
        at: Unix time at which the body was read.
        oldest: the same for the oldest request that still runs.
        expected_tokens: the expected answer length, unless the request's bound is lower.
    """
    order, tail, report, route = exchange.order, exchange.tail, exchange.report, exchange.route
    assert order is not None
    prompt = order.prompt
    request, target, session = prompt.request, prompt.targets[0], prompt.steering.session
    prompt_tokens = cached = None
    output = 0
    if tail is not None:
        if (usage := tail.usage()) is None:
            output = tail.events
        else:
            prompt_tokens, output, cached = usage.prompt, usage.output or 0, usage.cached
    if report is not None:
        prompt_tokens, cached = report.prompt_tokens, report.cached_tokens
    pool, replica, matched = "", "", 0
    if route is not None:
        pool, replica, matched = route.pool, route.replica, route.matched_tokens
    status, total_s, ttfb_s = exchange.status, now - at, exchange.ttfb_s
    # By position, in the order of the fields: by name it would take six times as long.
    return Record(
        at,
        oldest,
        target.adapter or target.model,
        len(request.prefix) + request.cut_bytes + request.extra_bytes,
        prompt_tokens or request.prompt_tokens(target.bytes_per_token),
        request.output_tokens(expected_tokens),
        _FINISHED if status < 400 and exchange.is_complete else _outcome(status),
        status,
        total_s,
        pool,
        target.model if target.adapter else "",
        prompt.keys,
        output,
        None if ttfb_s is None else total_s - (exchange.duration_s - ttfb_s),
        matched,
        cached,
        exchange.tries,
        replica,
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


def _outcome(status: int) -> Outcome:
    """Of a request that did not finish."""
    if status < 400:
        return Outcome.FAILED
    if status == _CLIENT_LEFT:
        return Outcome.LEFT
    if status in (429, 503):
        return Outcome.REFUSED
    return Outcome.INVALID if status < 500 else Outcome.FAILED
