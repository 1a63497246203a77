"""Placement: which replica serves a prompt, decided and reserved in one round trip to Redis."""

from collections.abc import Callable
from dataclasses import dataclass

from pando_fleet.client import FleetError, RedisClient


class NoReplica(FleetError):  # noqa: N818  (a state of the fleet, not a mistake)
    """No replica of the pool is fresh, ready and allowed for this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request needs. `lease` is its id: asking again under it replaces the first lease."""

    keys: bytes  # packed chunk keys of the prompt, root first
    prompt_tokens: int
    output_tokens: int  # expected
    lease: str
    lease_ms: int  # the lease ends by itself after this, should the router die
    exclude: tuple[str, ...] = ()  # replicas that failed this request before
    only: str | None = None  # the one replica allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One replica's terms for one request; `cost_s` is wait_s + kv_wait_s + work_s * (1 + queue)."""

    replica: str
    url: str
    incarnation: str
    matched_chunks: int
    matched_tokens: int
    backlog_tokens: int  # uncached prompt tokens leased there and not yet prefilled
    outstanding: int  # requests leased there and not yet ended
    wait_s: float
    kv_wait_s: float
    work_s: float
    queue: float  # requests of the pool waiting for their first token, per ready replica
    cost_s: float


@dataclass(frozen=True, slots=True)
class Placement:
    """A request's place, and the lease that holds it."""

    lease: str
    chosen: Candidate


class Placer:
    """Places requests of one pool. `clock` (ms) stands in for Redis's TIME in simulations."""

    def __init__(
        self, redis: RedisClient, pool: str, clock: Callable[[], int] | None = None
    ) -> None:
        raise NotImplementedError

    async def place(self, ask: Ask) -> Placement:
        """Chooses the cheapest replica, leases it and touches the path there; one round trip.

        Raises NoReplica, FleetUnavailable.
        """
        raise NotImplementedError

    async def explain(self, ask: Ask) -> list[Candidate]:
        """Every candidate's terms, cheapest first, without placing the request."""
        raise NotImplementedError

    async def prefilled(self, placement: Placement) -> None:
        """The first byte is here: the prefill part of the lease is released. Idempotent."""
        raise NotImplementedError

    async def release(self, placement: Placement) -> None:
        """The request ended, failed or was cancelled: the rest of the lease goes. Idempotent."""
        raise NotImplementedError

    async def cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        """The chosen replica holds only `depth` chunks of the path: the rest leaves its set."""
        raise NotImplementedError
