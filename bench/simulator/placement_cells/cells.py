"""The cells: one axis at a time is varied around a middle cell of each trace, plus some corners."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

SHARES = (1.0, 0.97, 1.03)
"""Shares of a cell's load at which it is played: a loaded fleet is chaotic, so a single play proves
little."""

_LARGE = "h100x2-llama-3.3-70b-fp8"


class Trace(StrEnum):
    CONVERSATION = "conversation"
    SYNTHETIC = "synthetic"
    AGENTS = "agents"
    SMALL = "small"  # the only one in the repository


FILES = {
    Trace.CONVERSATION: "mooncake_conversation.jsonl.gz",
    Trace.SYNTHETIC: "mooncake_synthetic.jsonl.gz",
    Trace.AGENTS: "miniswe_agent.jsonl.gz",
}
"""In the folder of traces."""

_EVERYWHERE = ("cache_aware", "round_robin", "least_loaded", "smg", "llm_d", "dynamo")
_IN_THE_MIDDLE = ("vllm", "production_stack")
"""Played in middle cells only: one does what `least_loaded` does, hardly better; the other ignores
load, so that with unevenly used prefixes its queues would grow as long as the trace and take most
of the time."""
_MORE_REPEATS = 4  # largest factor for a trace that is repeated for more replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    trace: Trace
    replicas: int
    capacity_tokens: int  # of each replica's KV pool
    load: float  # relative to a fleet without caches, see `loads.py`
    routers: int = 1
    cost_model: str = "h100-llama-3.1-8b-fp8"
    slow: float = 1.0  # factor of the step times of one replica
    take: int | None = None  # requests; None: all of them
    repeat: int = 1
    middle: bool = False  # of its trace

    @property
    def name(self) -> str:
        slow = f", one {self.slow:g} times slower" if self.slow != 1 else ""
        routers = f", {self.routers} routers" if self.routers > 1 else ""
        return (
            f"{self.trace}: {self.replicas} x {self.capacity_tokens // 1000}k,"
            f" {100 * self.load:.0f} %{routers}{slow}"
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """Includes `session` if the trace names sessions."""
        named = ("session",) if self.trace in (Trace.AGENTS, Trace.SMALL) else ()
        return (*_EVERYWHERE, *named, *(_IN_THE_MIDDLE if self.middle else ()))

    def sized(self, replicas: int) -> "Cell":
        """With `replicas` replicas; with more, also more requests, but not proportionally."""
        more = max(1, replicas // self.replicas)
        if self.take is None:
            return replace(self, replicas=replicas, repeat=self.repeat * min(more, _MORE_REPEATS))
        return replace(self, replicas=replicas, take=self.take * (3 + more) // 4)


def _varied(middle: Cell, scarce: int, ample: int) -> Iterator[Cell]:
    yield replace(middle, middle=True)
    for load in (0.5, 1.2):
        yield replace(middle, load=load)
    yield replace(middle, capacity_tokens=scarce)
    yield replace(middle, capacity_tokens=ample)
    yield middle.sized(4)
    yield middle.sized(16)
    yield replace(middle, routers=4)
    yield replace(middle, slow=1.15)
    # Corners: everything against the caches, and everything for them.
    yield replace(middle, load=1.2, capacity_tokens=scarce, routers=4)
    yield replace(middle, load=0.5, capacity_tokens=ample).sized(4)
    yield replace(middle, routers=4).sized(64)


_CONVERSATION = Cell(
    trace=Trace.CONVERSATION, replicas=8, capacity_tokens=480_000, load=0.8, take=1000
)
_SYNTHETIC = Cell(trace=Trace.SYNTHETIC, replicas=8, capacity_tokens=480_000, load=0.8, take=1600)
_AGENTS = Cell(
    trace=Trace.AGENTS,
    replicas=8,
    capacity_tokens=120_000,
    load=0.8,
    repeat=2,
    cost_model=_LARGE,
)

CELLS = (
    *_varied(_CONVERSATION, scarce=150_000, ample=960_000),
    *_varied(_SYNTHETIC, scarce=150_000, ample=960_000),
    *_varied(_AGENTS, scarce=60_000, ample=430_000),
)

SMALL_CELLS = tuple(
    Cell(trace=Trace.SMALL, replicas=4, capacity_tokens=120_000, load=load, routers=routers)
    for load, routers in ((0.5, 1), (0.8, 1), (0.8, 4), (1.2, 1))
)
"""Cells of the trace that is in the repository."""
