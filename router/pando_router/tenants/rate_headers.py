"""Rate limits as headers of an answer, in OpenAI's names and format."""

from pando_fleet.http.server.headers import Headers
from pando_fleet.records.limits import Limits
from pando_fleet.records.rate_limits import Level, Taken


def rate_headers(limits: Limits, taken: Taken) -> Headers:
    """`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, for the limits that are set."""
    headers: Headers = []
    if limits.requests:
        headers += _headers(b"requests", limits.requests, taken.requests)
    if limits.tokens:
        headers += _headers(b"tokens", limits.tokens, taken.tokens)
    return headers


def duration(ms: int) -> str:
    """A duration as Go formats it: "120ms", "7.66s", "1m30.5s"."""
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest = divmod(ms, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}"


def _headers(kind: bytes, limit: int, level: Level) -> Headers:
    return [
        (b"x-ratelimit-limit-" + kind, b"%d" % limit),
        (b"x-ratelimit-remaining-" + kind, b"%d" % level.left),
        (b"x-ratelimit-reset-" + kind, duration(level.full_ms).encode()),
    ]
