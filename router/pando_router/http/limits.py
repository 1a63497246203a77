"""Limits on connections to clients and replicas: their number, bytes and times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits on clients. Times in seconds, each precise to a second."""

    header_timeout: float = 10.0  # from the first byte of a request to the end of its headers
    body_timeout: float = 60.0  # for the whole body; slower clients would hold memory for nothing
    idle_timeout: float = 75.0  # between two requests of one connection
    write_timeout: float = 60.0  # without the client reading a byte of its answer
    max_header_bytes: int = 64 * 1024  # request line and headers together
    max_connections: int = 16_384  # open at once; further ones are refused


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Limits on one replica. Times in seconds; all but `connect` are precise to a second."""

    max_connections: int = 1024
    connect: float = 2.0
    first_byte: float = 600.0  # from the request to the first byte of the answer's body
    idle: float = 300.0  # between two pieces of the body
    request: float = 3600.0  # for the whole request


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
