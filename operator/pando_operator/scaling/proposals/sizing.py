"""`View`: the input of all proposals, and the conversion from tokens to replicas."""

import math
from dataclasses import dataclass

from pando_fleet.registry.replica import Heartbeat
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.scaling.history.demand import Demand, needed_tokens
from pando_operator.scaling.history.history import History
from pando_operator.scaling.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class View:
    """A pool at one moment."""

    snapshot: Snapshot
    policy: ScalingPolicy
    history: History  # includes this observation
    beats: tuple[Heartbeat, ...]  # fresh
    now_s: float

    @property
    def current(self) -> int:
        return self.snapshot.current

    @property
    def pressure(self) -> float | None:
        """KV pressure now, over the ready replicas that report."""
        capacity = sum(beat.capacity_tokens for beat in self.beats)
        if not capacity or not self.history.samples:
            return None
        return self.history.samples[-1].demand_tokens / capacity

    def needed_tokens(self, demand: Demand) -> float:
        """KV tokens that the demand needs room for."""
        start_s, window_s = self.snapshot.start_s, self.policy.window_seconds
        return needed_tokens(demand, self.history, start_s, window_s)

    def replicas_for(self, tokens: float) -> int:
        """Replicas that hold the tokens at the target; the current number within the tolerance."""
        room = self.policy.target.pressure * self.history.usable_tokens
        if self.current and abs(tokens / (room * self.current) - 1) <= self.policy.tolerance:
            return self.current
        return math.ceil(tokens / room - 1e-9)

    def on_ready(self) -> str:
        """Such as "on 3 ready replicas (2 more coming)"."""
        ready = self.snapshot.ready
        coming = f" ({self.snapshot.coming} more coming)" if self.snapshot.coming else ""
        return f"on {ready} ready replica{'' if ready == 1 else 's'}{coming}"
