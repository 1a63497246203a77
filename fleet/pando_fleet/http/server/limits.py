"""Limits on clients: their number, bytes and times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits on clients. Times in seconds, each precise to a second."""

    header_timeout: float = 10.0  # from the first byte of a request to the end of its headers
    body_timeout: float = 60.0  # for the whole body; slower clients would hold memory for nothing
    min_body_rate: int = 1024  # bytes per second at which a body must arrive
    idle_timeout: float = 75.0  # between two requests of one connection
    write_timeout: float = 60.0  # without the client reading a byte of its answer
    max_header_bytes: int = 64 * 1024  # request line and headers together
    max_connections: int = 16_384  # open at once; further ones are refused


# A body's rate is measured over RATE_S seconds, and at least RATES times in its time limit.
RATE_S = 10.0
RATES = 4

MAX_HEADERS = 256  # in one request; each costs more memory than its bytes

# Bytes of pipelined requests, or of a body that the handler does not read yet. Above it, reading
# from the connection pauses.
MAX_AHEAD_BYTES = 64 * 1024
MAX_AHEAD_REQUESTS = 64

# How many idle connections to close at once when there is no room for a new one; more than one,
# because the search for them is expensive.
ROOM_FOR = 32
MAX_TURNED_AWAY = 1024  # connections being answered 503 at once; further ones are cut

# How long to read on after refusing a request before its end: closing while it arrives would reset
# the connection, and the client might never read the answer (RFC 9112, 9.6).
LINGER_S = 2.0
