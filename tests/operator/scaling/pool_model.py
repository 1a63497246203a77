"""Builders of snapshots, and a small pool under load that a policy controls in virtual time.

The pool is a fluid model: tokens arrive at a rate, wait for room, stay pinned for a residence time,
and leave. It shares no code with the scaling decisions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_operator.resource.policy import Behavior, ScaleDown, ScalingPolicy
from pando_operator.scaling import (
    Decision,
    History,
    Signals,
    Snapshot,
    decide,
)

CAPACITY = 100_000
REQUEST = 1_000  # tokens per request
NOW = 1_800_000_000.0
NOBODY = Queued(requests=0, waited_ms=0, tokens=0)
AT_ONCE = Behavior(scale_down=ScaleDown(stabilization_window_seconds=0))


def changed(policy: ScalingPolicy, **fields: Any) -> ScalingPolicy:
    """The policy with some fields changed."""
    return ScalingPolicy(**{**dict(policy), **fields})


def load(
    name: str, pinned: int = 0, prompt: int = 0, output: int = 0, age_s: float = 0.2, **more: Any
) -> Replica:
    values: dict[str, Any] = {
        "replica": name,
        "incarnation": name,
        "url": "",
        "model": "",
        "state": ReplicaState.READY,
        "capacity_tokens": CAPACITY,
        "pinned_tokens": pinned,
        "running": ceil(pinned / REQUEST),
        "waiting": ceil((prompt + output) / REQUEST),
        "waiting_tokens": prompt,
        "waiting_output_tokens": output,
        "prefill_tokens_per_s": 10_000.0,
    }
    return Replica(Heartbeat(**{**values, **more}), age_ms=round(1000 * age_s))


def pool(
    *pressures: float,
    coming: int = 0,
    queued: Queued = NOBODY,
    start_s: float | None = None,
    history: History | None = None,
    **more: Any,
) -> Snapshot:
    """Ready replicas at these pressures, from pinned tokens only, and some that are starting."""
    loads = tuple(
        load(f"r{i}", round(pressure * CAPACITY), **more) for i, pressure in enumerate(pressures)
    )
    return Snapshot(
        current=len(loads) + coming,
        ready=len(loads),
        signals=Signals(loads, queued),
        start_s=start_s,
        history=history or History(capacity_tokens=CAPACITY),
    )


def settled(snapshot: Snapshot, policy: ScalingPolicy, seconds: float = 400.0) -> Decision:
    """The decision after the pool has been in this state for `seconds`."""
    decision = decide(snapshot, policy, NOW)
    for step in range(1, int(seconds / 5) + 1):
        snapshot = replace(snapshot, history=decision.history)
        decision = decide(snapshot, policy, NOW + 5 * step)
    return decision


@dataclass
class FluidPool:
    """Capacity is CAPACITY tokens per replica, of which it can fill only the usable share: with
    long prompts and short answers, computing limits it before memory does."""

    policy: ScalingPolicy
    arrivals: Callable[[float], float]  # tokens per second at a time in seconds since the start
    residence_s: float = 20.0
    usable_share: float = 1.0
    start_s: float = 60.0
    learned_start_s: float | None = None  # None: the real one
    ready: int = 1
    tick_s: float = 2.0
    pinned: float = 0.0
    waiting: float = 0.0
    history: History = field(default_factory=History)
    starting: list[float] = field(default_factory=list)  # the time when each will be ready
    trace: list[tuple[float, int, int, float]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def run(self, seconds: float) -> "FluidPool":
        begin = self.trace[-1][0] + self.tick_s if self.trace else 0.0
        for step in range(int(seconds / self.tick_s)):
            self._tick(begin + step * self.tick_s)
        return self

    def sizes(self, since_s: float = 0.0) -> list[int]:
        """The decided size of each tick."""
        return [size for at_s, size, _, _ in self.trace if at_s >= since_s]

    def _tick(self, at_s: float) -> None:
        self.ready += sum(1 for due in self.starting if due <= at_s)
        self.starting = [due for due in self.starting if due > at_s]
        released = self.pinned * min(1.0, self.tick_s / self.residence_s)
        self.waiting += self.arrivals(at_s) * self.tick_s
        usable = self.ready * CAPACITY * self.usable_share
        room = max(0.0, usable - self.pinned + released)
        admitted = min(self.waiting, room)
        self.pinned += admitted - released
        self.waiting -= admitted
        decision = self._decide(at_s, released / self.tick_s)
        self._carry_out(at_s, decision)
        pressure = (self.pinned + self.waiting) / max(1, self.ready * CAPACITY)
        self.trace.append((at_s, decision.desired, self.ready, pressure))
        self.decisions.append(decision)

    def _decide(self, at_s: float, release: float) -> Decision:
        each = max(1, self.ready)
        loads = tuple(
            load(
                f"r{i}",
                int(self.pinned / each),
                int(self.waiting / each),
                release_tokens_per_s=release / each,
            )
            for i in range(self.ready)
        )
        queued = NOBODY
        if not self.ready and self.waiting:
            requests = ceil(self.waiting / REQUEST)
            queued = Queued(requests, waited_ms=1_000, tokens=int(self.waiting))
        snapshot = Snapshot(
            current=self.ready + len(self.starting),
            ready=self.ready,
            signals=Signals(loads, queued),
            start_s=self.start_s if self.learned_start_s is None else self.learned_start_s,
            history=self.history,
        )
        return decide(snapshot, self.policy, NOW + at_s)

    def _carry_out(self, at_s: float, decision: Decision) -> None:
        self.history = decision.history
        change = decision.desired - decision.current
        if not change:
            return
        self.history = self.history.scaled(
            NOW + at_s, decision.current, decision.desired, decision.by
        )
        if change > 0:
            self.starting += [at_s + self.start_s] * change
            return
        for _ in range(-change):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1
