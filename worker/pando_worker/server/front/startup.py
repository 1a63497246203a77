"""A worker's socket, address and name, chosen before it serves."""

import socket
from dataclasses import dataclass
from ipaddress import IPv6Address

from pando_fleet.http.listener import EVERYWHERE, bound_everywhere
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
        listener = _bound(settings.host, settings.port)
        listener.listen(BACKLOG)
    except OSError as error:
        raise CannotStartError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
        ) from error
    port: int = listener.getsockname()[1]
    return Address(
        listener=listener,
        url=_bracketed(settings.url) or f"http://{_reachable(settings.host)}:{port}",
        replica=settings.replica or f"{socket.gethostname()}-{port}",
    )


def _bound(host: str, port: int) -> socket.socket:
    if host == EVERYWHERE:
        return bound_everywhere(port)
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(where)
    return listener


def _bracketed(url: str | None) -> str | None:
    """The URL with brackets around an IPv6 address. Kubernetes gives a pod's address without them,
    and a variable such as http://$(POD_IP):30000 cannot add them for one family alone."""
    scheme, separator, rest = (url or "").partition("://")
    address, _, port = rest.rpartition(":")
    try:
        IPv6Address(address)
    except ValueError:
        return url
    return f"{scheme}{separator}[{address}]:{port}"


def _reachable(host: str) -> str:
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
