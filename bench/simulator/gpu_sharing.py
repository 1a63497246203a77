"""Two pools on one set of GPUs, against two fixed halves: python -m bench.simulator.gpu_sharing

The operator's own decisions (`decide`) and shares (`grants`) run in virtual time. A pool is a
fluid: tokens arrive at a rate that rises and falls like a day's, wait for room, stay for a
residence time and leave. A replica has one GPU from the decision to start it until it has drained.
The first day is played and not counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import click

from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.scaling import Claim, History, Signals, Snapshot, decide, grants

GPUS = 8
CAPACITY = 100_000  # KV tokens of a replica
REQUEST = 2_000  # tokens
RESIDENCE_S = 20.0
START_S = 120.0
DRAIN_S = 40.0
TICK_S = 2.0
DAY_S = 6 * 3600.0
BEGAN = 1_800_000_000.0
LEAST_PART, MOST_REPLICAS = 0.15, 6.5
"""At its peak a pool needs that many replicas at the target, at its quietest this part of them."""

POLICY = ScalingPolicy(min_replicas=1, max_replicas=GPUS)
HEAD = (
    "| GPUs | phases | mean wait, s: chat | code | longest queue, requests: chat | code |"
    " GPU-hours |\n|---|---|---|---|---|---|---|"
)


@dataclass(slots=True)
class Pool:
    """One pool; its GPUs are those of ready, starting and draining replicas."""

    name: str
    arrivals: Callable[[float], float]  # tokens a second, by time
    most: int  # of its own
    priority: int = 0
    ready: int = 1
    starting: list[float] = field(default_factory=list)  # when each is ready
    draining: list[float] = field(default_factory=list)  # when each is gone
    pinned: float = 0.0
    waiting: float = 0.0
    released_per_s: float = 0.0
    history: History = field(default_factory=History)
    wanted: int = 1
    arrived: float = 0.0
    waited: float = 0.0  # token-seconds
    longest: float = 0.0  # queue, tokens

    @property
    def held(self) -> int:
        return self.ready + len(self.starting) + len(self.draining)

    def flow(self, now_s: float) -> None:
        self.ready += sum(due <= now_s for due in self.starting)
        self.starting = [due for due in self.starting if due > now_s]
        self.draining = [due for due in self.draining if due > now_s]
        released = self.pinned * min(1.0, TICK_S / RESIDENCE_S)
        new = self.arrivals(now_s) * TICK_S
        room = max(0.0, self.ready * CAPACITY - self.pinned + released)
        admitted = min(self.waiting + new, room)
        self.pinned += admitted - released
        self.waiting += new - admitted
        self.released_per_s = released / TICK_S
        self.arrived += new
        self.waited += self.waiting * TICK_S
        self.longest = max(self.longest, self.waiting)

    def claim(self, now_s: float) -> Claim:
        """Decides by the load."""
        snapshot = Snapshot(
            current=self.ready + len(self.starting),
            ready=self.ready,
            draining=len(self.draining),
            signals=self._signals(),
            start_s=START_S,
            history=self.history,
        )
        policy = POLICY.model_copy(update={"max_replicas": self.most})
        decision = decide(snapshot, policy, BEGAN + now_s)
        self.history, self.wanted = decision.history, decision.desired
        return Claim(
            pool=self.name,
            wanted=decision.desired,
            least=1,
            held=self.held,
            kept=self.ready + len(self.starting),
            gpus=1,
            priority=self.priority,
        )

    def follow(self, size: int, now_s: float) -> None:
        current = self.ready + len(self.starting)
        if size == current:
            return
        self.history = self.history.scaled(BEGAN + now_s, current, size, "")
        self.starting += [now_s + START_S] * (size - current)
        for _ in range(current - size):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1
                self.draining.append(now_s + DRAIN_S)

    def _signals(self) -> Signals:
        each = max(1, self.ready)
        beats = (
            Heartbeat(
                replica=f"{self.name}-{number}",
                incarnation=f"{self.name}-{number}",
                url="",
                model="",
                state=ReplicaState.READY,
                capacity_tokens=CAPACITY,
                pinned_tokens=int(self.pinned / each),
                running=math.ceil(self.pinned / each / REQUEST),
                waiting=math.ceil(self.waiting / each / REQUEST),
                waiting_output_tokens=int(self.waiting / each),
                release_tokens_per_s=self.released_per_s / each,
            )
            for number in range(self.ready)
        )
        nobody = Queued(requests=0, waited_ms=0, tokens=0)
        return Signals(tuple(Replica(beat, age_ms=200) for beat in beats), nobody)


def day(phase: float) -> Callable[[float], float]:
    """Tokens a second, between a quiet time and a peak."""
    peak = MOST_REPLICAS * CAPACITY * POLICY.target.pressure / RESIDENCE_S

    def at(now_s: float) -> float:
        wave = (1 - math.cos(2 * math.pi * (now_s / DAY_S + phase))) / 2
        return peak * (LEAST_PART + (1 - LEAST_PART) * wave)

    return at


def run(pools: list[Pool], days: int, *, shared: bool) -> float:
    """Plays one day more, and returns the GPU-hours used in the others."""
    used_s = 0.0
    for step in range(int((1 + days) * DAY_S / TICK_S)):
        now_s = step * TICK_S
        if now_s == DAY_S:
            used_s = 0.0
            for pool in pools:
                pool.arrived = pool.waited = pool.longest = 0.0
        for pool in pools:
            pool.flow(now_s)
        claims = [pool.claim(now_s) for pool in pools]
        if shared:
            found = grants(claims, "H100", GPUS)
            sizes = [found[pool.name].replicas for pool in pools]
        else:
            sizes = [claim.wanted for claim in claims]
        for pool, size in zip(pools, sizes, strict=True):
            pool.follow(size, now_s)
        used = sum(pool.held for pool in pools)
        assert used <= GPUS or not shared, "the budget was exceeded"
        used_s += used * TICK_S
    return used_s / 3600


@click.command()
@click.option("--days", default=2, show_default=True, help="days of six hours, in virtual time")
def main(days: int) -> None:
    """Prints a table."""
    click.echo(HEAD)
    for words, phase in (("opposite", 0.5), ("a quarter", 0.25), ("equal", 0.0)):
        chat, code = Pool("chat", day(0.0), GPUS), Pool("code", day(phase), GPUS)
        halves = [replace(chat, most=GPUS // 2), replace(code, most=GPUS // 2)]
        rows = {
            "two halves": (halves, False),
            "shared": ([replace(chat), replace(code)], True),
            "shared, chat has priority 10": ([replace(chat, priority=10), replace(code)], True),
        }
        for name, (pools, shared) in rows.items():
            hours = run(pools, days, shared=shared)
            waits = [f"{pool.waited / pool.arrived:.2f}" for pool in pools]
            queues = [f"{pool.longest / REQUEST:,.0f}" for pool in pools]
            cells = (name, words, *waits, *queues, f"{hours:.1f}")
            click.echo("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
