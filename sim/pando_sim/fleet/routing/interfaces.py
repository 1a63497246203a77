"""What plugs into a simulated router: a placement policy.

Times are virtual seconds from the trace's start. Whatever is drawn at random is drawn from the
`random.Random` that comes with the context, and whatever is iterated has an order, so that the same
seed gives the same run bit for bit.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.registry.replica import Heartbeat
from pando_router.core.route import Route, Shortage
from pando_sim.request import Request

POOL = "simulated"


@dataclass(frozen=True, slots=True)
class Question:
    """A request that a router wants placed."""

    request: Request
    prompt_tokens: int
    prompt_bytes: int
    keys: bytes  # of its prompt's chunks, packed, root first
    output_tokens: int  # expected
    lease: str  # an id of this request at this router
    allowed: tuple["Member", ...]  # those that may be chosen, by name; at least one

    @property
    def affinity(self) -> bytes:
        """The start of the prompt, which keeps prompts that share it together."""
        # A prompt of less than a chunk has no key.
        return self.keys[:KEY_BYTES] or self.request.prompt.tokens().tobytes()[:CHUNK_BYTES]

    @property
    def session(self) -> bytes:
        return self.request.session.encode()


class Policy(Protocol):
    """How one router chooses. It may keep state of its own, and learns what a router learns:
    the lease of a route hears of the first byte and of its end.

    The calls come in the order of virtual time. None but `place` waits for anything.
    """

    async def place(self, question: Question) -> Route | Shortage: ...

    def close(self) -> None:
        """The trace is over; what has not been written is to be written now."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A replica as a router knows it by its last heartbeat: fresh, ready, and with no mark that
    withholds it."""

    beat: Heartbeat
    # To policies the last heartbeat counts as fresh, also while Redis is away.
    beats: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.beat.replica
