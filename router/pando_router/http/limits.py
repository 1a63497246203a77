"""What clients and replicas may take: connections, and each of them bytes and time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds; each holds to within a second."""

    header_timeout: float = 10.0  # from the first byte of a request to the end of its headers
    body_timeout: float = 60.0  # for all of it: who sends slower than that holds memory for nothing
    idle_timeout: float = 75.0  # between two requests of one connection
    write_timeout: float = 60.0  # without the client taking a single byte of its answer
    max_header_bytes: int = 64 * 1024  # request line and headers together
    max_connections: int = 16_384  # open at once; above it new ones are turned away


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """What one replica may take. Times in seconds; all but `connect` hold to within a second."""

    max_connections: int = 1024
    connect: float = 2.0
    first_byte: float = 600.0  # from the request to the first byte of the answer's body
    idle: float = 300.0  # between two pieces of the body
    request: float = 3600.0  # for all of it


MAX_HEADERS = 256  # in one request; each costs more memory than its bytes

# Bytes of requests that came while another of the same connection is served, and of a body nobody
# has asked for yet. Above it the connection is not read.
MAX_AHEAD_BYTES = 64 * 1024
MAX_AHEAD_REQUESTS = 64

# Idle connections that are closed at once where there is no room for a new one: looking for them is
# what costs.
ROOM_FOR = 32
MAX_TURNED_AWAY = 1024  # connections being told so at once; above it they are cut

# For the rest of a request that was refused before its end: closing while it comes in would reset
# the connection, and the client might never read the answer (RFC 9112, 9.6).
LINGER_S = 2.0
