"""Limits on connections to replicas: their number and times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Limits on one replica. Times in seconds; all but `connect` are precise to a second."""

    max_connections: int = 1024
    connect: float = 2.0
    first_byte: float = 600.0  # from the request to the first byte of the answer's body
    idle: float = 300.0  # between two pieces of the body
    request: float = 3600.0  # for the whole request
