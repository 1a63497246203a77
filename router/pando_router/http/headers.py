"""Which headers pass from clients to replicas, and from replicas to clients."""

from pando_fleet.http.server.headers import Headers
from pando_fleet.http.time_limit import HEADERS as TIME_LIMITS

PRIORITY_HEADER = b"x-priority"
"""Orders the queues of router and worker, where `allow_priority_header` lets it."""

# Valid for one connection only, not forwarded (RFC 9110, 7.6.1).
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
# Client headers that are set anew for each replica, or handled by the router.
NOT_FORWARDED = _HOP_BY_HOP | TIME_LIMITS | {b"host", b"content-length", b"expect", b"x-request-id"}
# Replica headers that the router sets in every answer itself.
NOT_RETURNED = _HOP_BY_HOP | {
    b"content-length",
    b"x-request-id",
    b"x-pando-replica",
    b"x-pando-matched-tokens",
}

_NAMES_NOTHING = frozenset((b"keep-alive", b"close"))  # the usual values of `connection`


def without(headers: Headers, left_out: frozenset[bytes], connection: bytes) -> Headers:
    """`headers` without `left_out` and without those that `connection`, if not empty, names."""
    if connection and connection.lower() not in _NAMES_NOTHING:
        left_out = left_out.union(token.strip().lower() for token in connection.split(b","))
    return [header for header in headers if header[0] not in left_out]
