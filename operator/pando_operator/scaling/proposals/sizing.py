"""From tokens to replicas, as every proposal does it."""

import math
from dataclasses import dataclass

from pando_fleet.registry.replica import Heartbeat
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.scaling.history.demand import Demand, needed_tokens
from pando_operator.scaling.history.history import History
from pando_operator.scaling.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class View:
    """What proposals are made of: the pool with this look in its history."""

    snapshot: Snapshot
    policy: ScalingPolicy
    history: History  # with this look
    beats: tuple[Heartbeat, ...]  # fresh
    now_s: float

    @property
    def current(self) -> int:
        return self.snapshot.current

    @property
    def pressure(self) -> float | None:
        """Of this look, over the replicas that are ready and heard of."""
        capacity = sum(beat.capacity_tokens for beat in self.beats)
        if not capacity or not self.history.samples:
            return None
        return self.history.samples[-1].demand_tokens / capacity

    def needed_tokens(self, demand: Demand) -> float:
        """Room that the demand asks for."""
        start_s, window_s = self.snapshot.start_s, self.policy.window_seconds
        return needed_tokens(demand, self.history, start_s, window_s)

    def replicas_for(self, tokens: float) -> int:
        """That hold so many tokens at the target; as many as there are within the tolerance."""
        room = self.policy.target.pressure * self.history.usable_tokens
        if self.current and abs(tokens / (room * self.current) - 1) <= self.policy.tolerance:
            return self.current
        return math.ceil(tokens / room - 1e-9)

    def on_ready(self) -> str:
        """Such as "on 3 ready replicas (2 more are coming)"."""
        ready = self.snapshot.ready
        coming = f" ({self.snapshot.coming} more coming)" if self.snapshot.coming else ""
        return f"on {ready} ready replica{'' if ready == 1 else 's'}{coming}"
