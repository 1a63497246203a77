"""The interface of a simulated router's placement policy.

Times are virtual seconds from the trace's start. Everything random comes from the `random.Random`
of the context, and everything iterated has an order, so that the same seed gives the same run, bit
for bit.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.registry.replica import Heartbeat
from pando_router.core.route import Route, Shortage
from pando_sim.adapters import key_of
from pando_sim.request import Request

POOL = "simulated"


@dataclass(frozen=True, slots=True)
class Question:
    """A request that a router wants to place."""

    request: Request
    prompt_tokens: int
    prompt_bytes: int
    keys: bytes  # of its prompt's chunks, packed, root first
    output_tokens: int  # expected
    lease: str  # this request's id at this router
    allowed: tuple["Member", ...]  # replicas that may be chosen, by name; at least one
    may_wait: bool = True  # its session may be held back

    @property
    def affinity(self) -> bytes:
        """The adapter, else the start of the prompt: keeps prompts that share it together."""
        if self.request.adapter:
            return key_of(self.request.adapter).encode()
        # A prompt of less than a chunk has no key.
        return self.keys[:KEY_BYTES] or self.request.prompt.tokens().tobytes()[:CHUNK_BYTES]

    @property
    def session(self) -> bytes:
        return self.request.session.encode()


class Held:
    """The policy keeps the request back until it calls `Context.go_on`; then it is asked again."""


HELD = Held()


class Policy(Protocol):
    """Chooses replicas for one router. It may keep its own state, and learns what a router learns:
    the lease of a route is called at the first byte and at its end.

    Calls are in the order of virtual time. Only `place` may wait.
    """

    async def place(self, question: Question) -> Route | Shortage | Held: ...

    def close(self) -> None:
        """The trace is over; writes what has not been written yet."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A replica as a router knows it by its last heartbeat: fresh, ready, and not withheld by a
    mark."""

    beat: Heartbeat
    # To policies the last heartbeat counts as fresh, also while Redis is away.
    beats: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.beat.replica
