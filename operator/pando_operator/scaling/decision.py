"""`Decision`: how many replicas, and why."""

from dataclasses import dataclass
from enum import StrEnum

from pando_operator.scaling.history.history import History


class Direction(StrEnum):
    UP = "up"
    DOWN = "down"
    HOLD = "hold"


class Limit(StrEnum):
    """The limit that changed the proposed number."""

    MIN_REPLICAS = "minReplicas"
    MAX_REPLICAS = "maxReplicas"
    BUDGET = "budget"
    STABILIZATION = "stabilizationWindow"
    RATE = "ratePolicies"
    DISABLED = "disabled"
    N_MINUS_1 = "remainingReplicas"  # the remaining ones would exceed the target
    SIGNALS = "signals"  # stale or missing


@dataclass(frozen=True, slots=True)
class Proposal:
    """The size that one signal asks for."""

    by: str  # the signal's name, a constant of its module in `proposals/`
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    desired: int  # replicas that the pool should have now
    current: int
    wanted: int  # before limits
    by: str | None  # the source of `wanted`; None without any proposal
    limited_by: Limit | None  # what keeps `desired` from `wanted`
    reason: str  # in words, with numbers
    proposals: tuple[Proposal, ...]
    pressure: float | None  # now; None while no replica's signals are known
    signals_ok: bool  # False: stale or missing, as `problem` explains
    problem: str
    history: History  # for the next snapshot

    @property
    def direction(self) -> Direction:
        if self.desired == self.current:
            return Direction.HOLD
        return Direction.UP if self.desired > self.current else Direction.DOWN
