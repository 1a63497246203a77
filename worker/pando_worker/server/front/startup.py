"""A worker's socket, address and name, chosen before it serves."""

import socket
from dataclasses import dataclass

from pando_worker.settings import WorkerSettings

BACKLOG = 2048
"""Connections that may queue while the server is still being imported."""


class CannotStartError(Exception):
    """The worker cannot start; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Address:
    listener: socket.socket
    url: str  # where routers reach it
    replica: str  # its name in the fleet


def bind(settings: WorkerSettings) -> Address:
    """Binds the port, or a free one for port 0. Raises CannotStartError if that fails."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        raise CannotStartError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
        ) from error
    port: int = listener.getsockname()[1]
    return Address(
        listener=listener,
        url=settings.url or f"http://{_reachable(settings.host)}:{port}",
        replica=settings.replica or f"{socket.gethostname()}-{port}",
    )


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
