"""The results of a run, for tables, files and the report. Times are virtual seconds from the
trace's start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import nan


class Outcome(StrEnum):
    FINISHED = "finished"
    REFUSED = "refused"  # 429 or 503, or its deadline passed in the queue
    FAILED = "failed"  # the replica died, and no further try was allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request, from its arrival to its end."""

    number: int  # as in the trace
    arrival_s: float  # at a router; of a call that was refused before, for the first time
    placed_s: float  # last placement; nan if never placed
    first_token_s: float  # nan if there was none
    end_s: float
    replica: str  # the last one; empty if there was none
    tries: int  # placements
    prompt_tokens: int
    matched_tokens: int  # expected by the placement
    cached_tokens: int  # actually cached
    output_tokens: int
    longest_gap_s: float  # between two tokens; 0 for a single one
    outcome: Outcome
    retry_after_s: float = nan  # the pause that a refusal asked for; nan: it is final
    session: str = ""
    turn: int | None = None  # in a session: its place in its conversation, from 0
    repeated_tokens: int = 0  # in a session: of the prompt, an earlier one began with them

    @property
    def ttft_s(self) -> float:
        return self.first_token_s - self.arrival_s

    @property
    def token_gap_s(self) -> float:
        """The mean time between two tokens; 0 for a single one."""
        gaps = self.output_tokens - 1
        return (self.end_s - self.first_token_s) / gaps if gaps > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The pool at one moment; counters are totals since the start."""

    at_s: float
    replicas: int  # that cost money: starting, ready, draining
    ready: int
    draining: int
    queued: int  # requests in the routers
    waiting: int  # requests in the replicas
    running: int  # requests
    capacity_tokens: int  # of the ready replicas
    pinned_tokens: int
    cached_tokens: int
    arrived: int
    finished: int
    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    replica_seconds: float
    adapter_loads: int = 0  # into slots
    prefilled_by_replica: tuple[int, ...] = ()  # tokens computed, of living replicas, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStep:
    """A change of the pool's size, and what it cost."""

    at_s: float
    before: int
    after: int
    reason: str
    ready_s: float | None = None  # growth: when the last of the new replicas was ready
    recomputed_tokens: int = 0  # shrinking: lost with the removed caches, and needed again
    delayed_requests: int = 0  # late first tokens until the change took effect
    prefilled_tokens: int = 0  # computed to warm joining replicas, or handed off by leaving ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fault or other event that is shown in plots."""

    at_s: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCounts:
    at_once: int
    until_s: float  # afterwards nothing was sent
    ended: int  # until then
    cut: int  # until then, by a call that no replica accepted, such as one that is too long


@dataclass(slots=True, kw_only=True)
class Run:
    """One policy on one trace."""

    policy: str
    scaling: str  # "none" for a fixed size
    session_rule: str = ""  # empty: none was chosen
    seed: int
    cost_model: str  # name and source
    settings: Mapping[str, object]
    served: list[Served] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    steps: list[ScalingStep] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    sessions: SessionCounts | None = None
    checks: Mapping[str, int] = field(default_factory=dict)  # invariant: how often it was checked
    wall_s: float = 0.0
