"""What a decision says: how many replicas, and why."""

from dataclasses import dataclass
from enum import StrEnum

from pando_operator.scaling.history.history import History


class Direction(StrEnum):
    UP = "up"
    DOWN = "down"
    HOLD = "hold"


class By(StrEnum):
    """Who proposes a number."""

    PRESSURE = "pressure"
    QUEUE_WAIT = "queueWait"
    HOT_EVICTIONS = "hotEvictions"
    PANIC = "panic"
    GROWTH = "growth"  # until a replica that is asked for now would be ready
    IDLE = "idle"
    WAKE = "wake"


class Limit(StrEnum):
    """What kept a decision from the number that was proposed."""

    MIN_REPLICAS = "minReplicas"
    MAX_REPLICAS = "maxReplicas"
    BUDGET = "budget"
    STABILIZATION = "stabilizationWindow"
    RATE = "ratePolicies"
    DISABLED = "disabled"
    N_MINUS_1 = "remainingReplicas"  # the rest would be above the target
    SIGNALS = "signals"  # stale or missing


@dataclass(frozen=True, slots=True)
class Proposal:
    """One input's own answer."""

    by: By
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    desired: int  # replicas that the pool is to have now
    current: int
    wanted: int  # before limits
    by: By | None  # whose proposal `wanted` is; None where nothing could be proposed
    limited_by: Limit | None  # what keeps `desired` from `wanted`
    reason: str  # in plain words, with numbers
    proposals: tuple[Proposal, ...]
    pressure: float | None  # of the last look; None while no replica's signals are known
    signals_ok: bool  # False: stale or missing, and `problem` says what
    problem: str
    history: History  # for the next snapshot

    @property
    def direction(self) -> Direction:
        if self.desired == self.current:
            return Direction.HOLD
        return Direction.UP if self.desired > self.current else Direction.DOWN
