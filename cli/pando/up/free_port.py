"""A port for a server that starts soon."""

import socket
from random import SystemRandom

PORTS = range(16_384, 32_768)
_TRIES = 100


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of this IPv4 host that nobody uses now.

    It lies below 32768, from where on Linux picks ports for clients: one of these could be taken by
    another process before the server listens there. Raises OSError where none is free.
    """
    for port in SystemRandom().sample(PORTS, _TRIES):
        if is_free(host, port):
            return port
    raise OSError(f"no port of {host} is free, of {_TRIES} that were tried")


def is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
