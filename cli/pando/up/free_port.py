"""A port for a server that starts soon."""

import socket
from random import SystemRandom

_PORTS = range(16_384, 32_768)
_TRIES = 100


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of this IPv4 host that nobody uses now.

    It lies below 32768, from where on Linux picks ports for clients: one of these could be taken by
    another process before the server listens there. Raises OSError where none is free.
    """
    *others, last = SystemRandom().sample(_PORTS, _TRIES)
    for port in others:
        try:
            return _bound(host, port)
        except OSError:
            continue
    return _bound(host, last)


def _bound(host: str, port: int) -> int:
    with socket.socket() as probe:
        probe.bind((host, port))
    return port
