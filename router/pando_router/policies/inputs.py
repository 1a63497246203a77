"""What a policy sees: a request and replicas.

Protocols, because a router and the simulator know them by classes of their own.
"""

from typing import Protocol, TypeVar

from pando_fleet.registry.replica import Heartbeat


class RequestView(Protocol):
    """A request."""

    @property
    def affinity(self) -> bytes:
        """The start of the prompt, which requests that share a cache entry have in common."""
        ...

    @property
    def session(self) -> bytes:
        """The session that it belongs to; empty for none."""
        ...


class ReplicaView(Protocol):
    """A replica that may be chosen."""

    @property
    def beat(self) -> Heartbeat: ...

    @property
    def beats(self) -> bool:
        """Whether its heartbeats arrive."""
        ...


ReplicaViewT = TypeVar("ReplicaViewT", bound=ReplicaView)
