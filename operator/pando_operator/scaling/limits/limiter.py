"""`Limiter`: applies the limits to a proposed number of replicas.

In this order: missing signals (nothing shrinks), the check that the remaining replicas stay under
the target, stabilization windows, rate policies, and bounds. Each step that changes the number adds
a note.
"""

from dataclasses import dataclass, field

from pando_operator.resource.policy import ScalingRules, SelectPolicy
from pando_operator.scaling.decision import Limit, Proposal
from pando_operator.scaling.history.demand import within
from pando_operator.scaling.history.history import History
from pando_operator.scaling.limits.behavior import in_words, lower_limit, stabilized, upper_limit
from pando_operator.scaling.limits.bounds import Bounds
from pando_operator.scaling.proposals.idle import IDLE, WAKE
from pando_operator.scaling.proposals.panic import PANIC
from pando_operator.scaling.proposals.sizing import View


@dataclass(slots=True)
class Limiter:
    view: View
    proposals: tuple[Proposal, ...]
    best: Proposal | None
    replicas: int
    limited_by: Limit | None = None  # the last limit that changed it
    notes: list[str] = field(default_factory=list)

    def hold_without_signals(self, problem: str) -> None:
        if problem and self.replicas < self.view.current and not self._sleeps:
            self._becomes(self.view.current, Limit.SIGNALS, f"{problem}, so nothing shrinks")

    def keep_the_silent(self) -> None:
        """A replica of which nobody has heard for minutes counts as full, like a pod without
        metrics in HPA v2: it holds its own place and asks for no other."""
        silent, current = self.view.snapshot.silent, self.view.current
        if silent and self.replicas < current and not self._sleeps:
            words = "1 silent replica counts" if silent == 1 else f"{silent} silent replicas count"
            replicas = min(current, self.replicas + silent)
            self._becomes(replicas, Limit.SIGNALS, f"{words} as full")

    def keep_the_rest_under_target(self) -> None:
        """The highest demand of the stable window, waiting tokens included, must fit the rest.

        It is not known yet which replicas leave, so this assumes that the smallest ones remain and
        that no starting one helps.
        """
        if self.replicas >= self.view.current or self._sleeps:
            return
        samples = within(self.view.history.samples, self.view.policy.window_seconds)
        demand = max((sample.demand_tokens for sample in samples), default=0)
        least = _fitting(self.view, demand)
        if self.replicas < least:
            why = f"fewer than {least} would be over the target with {demand} tokens of demand"
            self._becomes(least, Limit.N_MINUS_1, why)

    def stabilize(self, history: History) -> None:
        """Apply the windows; `history` already has this recommendation."""
        behavior, current = self.view.policy.behavior, self.view.current
        replicas = stabilized(history, current, behavior, self.view.now_s)
        if self._by(PANIC):
            replicas = max(replicas, self.replicas)  # panic exists for what cannot wait
        if self._sleeps:
            replicas = 0  # idleSeconds is its own window
        shrinks = self.replicas < current
        rules = behavior.scale_down if shrinks else behavior.scale_up
        which, window_s = "highest" if shrinks else "lowest", rules.stabilization_window_seconds
        self._becomes(
            max(replicas, self._wakes),
            Limit.STABILIZATION,
            f"{which} recommendation of the last {window_s} s was {replicas}",
        )

    def bound_rate(self) -> None:
        behavior, current = self.view.policy.behavior, self.view.current
        events, now_s = self.view.history.events, self.view.now_s
        if self.replicas > current:
            most = max(upper_limit(behavior.scale_up, current, events, now_s), self._wakes)
            if self.replicas > most:
                self._limit_rate(most, "scaleUp", behavior.scale_up)
        elif self.replicas < current:
            least = lower_limit(behavior.scale_down, current, events, now_s)
            if self._sleeps and behavior.scale_down.select_policy is not SelectPolicy.DISABLED:
                least = 0
            if self.replicas < least:
                self._limit_rate(least, "scaleDown", behavior.scale_down)

    def bound(self, bounds: Bounds, *, may_shrink: bool) -> None:
        """Bounds override windows and rates, as in HPA v2."""
        if self.replicas < bounds.fewest:
            self._becomes(bounds.fewest, Limit.MIN_REPLICAS, bounds.why_fewest)
        if self.replicas > bounds.most:
            most = bounds.most if may_shrink else max(bounds.most, self.view.current)
            self._becomes(min(self.replicas, most), bounds.most_is, bounds.why_most)

    def _limit_rate(self, replicas: int, name: str, rules: ScalingRules) -> None:
        disabled = rules.select_policy is SelectPolicy.DISABLED
        limit = Limit.DISABLED if disabled else Limit.RATE
        self._becomes(replicas, limit, f"{name} allows {replicas} now ({in_words(rules)})")

    def _becomes(self, replicas: int, limit: Limit, note: str) -> None:
        if replicas != self.replicas:
            self.replicas, self.limited_by = replicas, limit
            self.notes.append(note)

    def _by(self, by: str) -> bool:
        return self.best is not None and self.best.by == by

    @property
    def _sleeps(self) -> bool:
        return self._by(IDLE)

    @property
    def _wakes(self) -> int:
        """1 if a request waits for a sleeping pool, else 0: only the pool's bounds may deny it."""
        return int(any(proposal.by == WAKE for proposal in self.proposals))


def _fitting(view: View, demand: float) -> int:
    """The fewest reporting replicas that hold the demand at the target; at most the current."""
    room, count = 0.0, 0
    for capacity in sorted(beat.capacity_tokens for beat in view.beats):
        if demand <= room:
            break
        room += view.policy.target.pressure * view.history.usable_share * capacity
        count += 1
    return min(count + view.snapshot.silent, view.current) if demand <= room else view.current
