"""Makes the records of requests."""

from collections.abc import Sequence

import msgspec

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.exchange.exchange import Exchange, Order
from pando_router.exchange.tail import Tail
from pando_router.recording.disguise import Disguise
from pando_router.recording.form import HIDDEN_BYTES, Outcome, Record

_CLIENT_LEFT = 499


class Observed(msgspec.Struct, gc=False):
    """A request that will be recorded when it has ended."""

    exchange: Exchange
    order: Order
    tail: Tail
    read_s: float  # when its body was read, by perf_counter


def records_of(
    ended: Sequence[Observed],
    oldest_s: float,
    began: float,
    expected_tokens: int,
    disguise: Disguise,
) -> list[Record]:
    """The records of requests in the order in which these ended. Of many at once, each takes a
    third of the time.

    Args:
        oldest_s: when the body of the oldest request that still runs was read, by perf_counter;
            infinity if there is none.
        began: the Unix time at which perf_counter was 0.
        expected_tokens: the expected answer length, unless a request's bound is lower.
    """
    hidden = disguise.keys(b"".join([one.order.prompt.keys for one in ended]))
    end = len(hidden)
    records = []
    for one in reversed(ended):  # so that the oldest request that ran longer is known
        start = end - len(one.order.prompt.keys) // KEY_BYTES * HIDDEN_BYTES
        record = _record(one, oldest_s, began, hidden[start:end], expected_tokens)
        if session := one.order.prompt.steering.session:
            record.session = disguise.name(session.decode("latin-1"))
        records.append(record)
        end = start
        if one.read_s < oldest_s:
            oldest_s = one.read_s
    records.reverse()
    return records


def _record(
    one: Observed, oldest_s: float, began: float, keys: bytes, expected_tokens: int
) -> Record:
    exchange, prompt, read_s = one.exchange, one.order.prompt, one.read_s
    request, target = prompt.request, prompt.targets[0]
    route, report, usage = exchange.route, exchange.report, one.tail.usage()
    reported = cached = None
    if report is not None:
        reported, cached = report.prompt_tokens, report.cached_tokens
    if usage is not None:
        reported = usage.prompt if reported is None else reported
        cached = usage.cached if cached is None else cached
    started, ttfb_s = exchange.started, exchange.ttfb_s
    end_s = started + exchange.duration_s
    adapter = target.adapter
    # By position, in the order of the fields: by name it would take six times as long.
    return Record(
        began + read_s,
        began + (oldest_s if oldest_s < end_s else end_s),
        adapter or target.model,
        len(request.prefix) + request.cut_bytes + request.extra_bytes,
        reported or request.prompt_tokens(target.bytes_per_token),
        request.output_tokens(expected_tokens),
        _outcome(exchange.status, done=exchange.is_complete),
        exchange.status,
        end_s - read_s,
        "" if route is None else route.pool,
        target.model if adapter else "",
        keys,
        one.tail.events if usage is None else usage.output or 0,
        None if ttfb_s is None else started + ttfb_s - read_s,
        0 if route is None else route.matched_tokens,
        cached,
        exchange.tries,
        "" if route is None else route.replica,
        "",
        request.stream,
    )


def _outcome(status: int, *, done: bool) -> Outcome:
    if status < 400:
        return Outcome.FINISHED if done else Outcome.FAILED
    if status == _CLIENT_LEFT:
        return Outcome.LEFT
    if status in (429, 503):
        return Outcome.REFUSED
    return Outcome.INVALID if status < 500 else Outcome.FAILED
