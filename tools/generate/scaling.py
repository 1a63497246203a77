"""Writes the examples of docs/scaling.md, as `decide` answers them, and its table of fields.

An example is between `<!-- example: NAME -->` and `<!-- end -->`: its YAML is the page's own, and
the block after it is written here. So is the table of all fields between `<!-- fields -->` and
`<!-- end -->`.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.resource.scaling import Scaling
from pando_operator.scaling import (
    Decision,
    History,
    Signals,
    Snapshot,
    decide,
)

PAGE = Path(__file__).parents[2] / "docs/scaling.md"
FIELDS = re.compile(r"(<!-- fields -->\n\n).*?(<!-- end -->)", re.S)
EXAMPLE = re.compile(r"(<!-- example: (\w+) -->\n\n```yaml\n(.*?)```\n\n).*?(<!-- end -->)", re.S)

CAPACITY = 100_000  # KV tokens of a replica
REQUEST = 1_000  # tokens of a request
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC).timestamp()  # a Monday


def load(name: str, pinned: float, waiting: float, release: float, hot: float = 0) -> Replica:
    beat = Heartbeat(
        replica=name,
        incarnation=name,
        url="",
        model="",
        state=ReplicaState.READY,
        capacity_tokens=CAPACITY,
        pinned_tokens=round(pinned),
        running=ceil(pinned / REQUEST),
        waiting=ceil(waiting / REQUEST),
        waiting_tokens=round(waiting),
        prefill_tokens_per_s=20_000.0,
        release_tokens_per_s=release,
        hot_evicted_tokens_total=round(hot),
    )
    return Replica(beat, age_ms=300)


@dataclass
class Pool:
    """Tokens arrive at a rate, wait for usable memory, stay pinned for 20 s, and leave."""

    policy: ScalingPolicy
    arrives: Callable[[float], float]  # replicas that this load would fill, by time in seconds
    ready: int = 1
    start_s: float = 60.0
    usable: float = 1.0  # share of a replica's memory that its computing can fill
    # Tokens that each of so many replicas evicts per second although they are needed again.
    hot_per_s: Callable[[int], float] = lambda _: 0.0
    hot: float = 0.0
    seen: int = 0  # ready replicas, at the last look
    pinned: float = 0.0
    waiting: float = 0.0
    waited_s: float = 0.0
    starting: list[float] = field(default_factory=list)
    history: History = field(default_factory=History)

    def run(self, seconds: int, every_s: int = 5) -> Iterator[tuple[int, int, Decision]]:
        """The time, ready replicas and decision of each look."""
        self.pinned = self.arrives(0.0) * CAPACITY
        for at in range(0, seconds, every_s):
            decision = self._look(at, every_s)
            yield at, self.seen, decision

    def _look(self, at: int, every_s: int) -> Decision:
        self.ready += sum(due <= at for due in self.starting)
        self.starting = [due for due in self.starting if due > at]
        released = self.pinned * min(1.0, every_s / 20) if at else 0.0
        self.waiting += self.arrives(at) * CAPACITY * every_s / 20 if at else 0.0
        room = self.ready * CAPACITY * self.usable
        admitted = min(self.waiting, max(0.0, room - self.pinned + released))
        self.pinned += admitted - released
        self.pinned = self.pinned if self.pinned > 100 else 0.0
        # Routers' queues are bounded.
        self.waiting = min(self.waiting - admitted, 30.0 * CAPACITY)
        self.waited_s = self.waited_s + every_s if self.waiting else 0.0
        self.hot += self.hot_per_s(self.ready) * every_s
        self.seen = self.ready
        decision = decide(self._snapshot(released / every_s), self.policy, NOON + at)
        self.history = decision.history
        if change := decision.desired - decision.current:
            by = decision.by
            self.history = self.history.scaled(NOON + at, decision.current, decision.desired, by)
            self.starting += [at + self.start_s] * change
            for _ in range(-change):
                if self.starting:
                    self.starting.pop()
                else:
                    self.ready -= 1
        return decision

    def _snapshot(self, release: float) -> Snapshot:
        share = max(1, self.ready)
        loads = tuple(
            load(f"r{i}", self.pinned / share, self.waiting / share, release / share, self.hot)
            for i in range(self.ready)
        )
        queued = Queued(requests=0, waited_ms=0, tokens=0)
        if not self.ready and self.waiting:
            requests, tokens = ceil(self.waiting / REQUEST), round(self.waiting)
            queued = Queued(requests, round(1000 * self.waited_s), tokens)
        return Snapshot(
            current=self.ready + len(self.starting),
            ready=self.ready,
            signals=Signals(loads, queued),
            start_s=self.start_s,
            history=self.history,
        )


def step(at_s: float) -> float:
    return 0.5 if at_s < 60 else 4.0


def rises(at_s: float) -> float:
    return 1.2 + min(max(0.0, at_s - 60) / 300, 6.0)


def falls(at_s: float) -> float:
    return 2.6 if at_s < 60 else 1.2 if at_s < 600 else 0.3


EXAMPLES: dict[str, Callable[[ScalingPolicy], tuple[Pool, int]]] = {
    "pressure": lambda policy: (Pool(policy, lambda _: 2.73, ready=3), 5),
    "step": lambda policy: (Pool(policy, step), 900),
    "computing": lambda policy: (Pool(policy, lambda at_s: 0.2 * step(at_s), usable=0.2), 900),
    "panic": lambda policy: (Pool(policy, step), 900),
    "growth": lambda policy: (Pool(policy, rises, ready=2, start_s=180.0), 1_200),
    "falls": lambda policy: (Pool(policy, falls, ready=4), 1_200),
    "rates": lambda policy: (Pool(policy, falls, ready=4), 1_200),
    "zero": lambda policy: (
        Pool(policy, lambda at_s: 0.4 if at_s < 60 or 600 <= at_s < 700 else 0.0),
        700,
    ),
    "hot": lambda policy: (
        Pool(policy, lambda _: 1.0, ready=2, hot_per_s=lambda ready: 900.0 if ready < 3 else 100.0),
        600,
    ),
    "schedule": lambda policy: (Pool(policy, lambda _: 0.5), 5),
    "budget": lambda policy: (Pool(policy, lambda _: 9.0, ready=8), 12 * 3600),
}
EVERY_S = {"budget": 300}


def files() -> Iterator[tuple[Path, str]]:
    page = PAGE.read_text(encoding="utf-8")
    page = EXAMPLE.sub(lambda found: found[1] + _table(found[2], found[3]) + found[4], page)
    rows = "\n".join(_fields(Scaling, ""))
    table = f"| field of `scaling` | default | what it is |\n|---|---|---|\n{rows}\n\n"
    yield PAGE, FIELDS.sub(lambda found: found[1] + table + found[2], page)


def _fields(model: type[BaseModel], above: str) -> Iterator[str]:
    """One row per field, followed by those of its parts."""
    for name, info in model.model_fields.items():
        path = f"{above}{info.alias or name}"
        parts = [one for one in _parts(info.annotation) if not issubclass(one, ScalingPolicy)]
        if not parts or info.default is None or not isinstance(info.default, BaseModel):
            yield f"| `{path}` | {_default(info)} | {info.description} |"
        for part in parts:
            yield from _fields(part, f"{path}{'[]' if isinstance(info.default, tuple) else ''}.")


def _parts(annotation: Any) -> list[type[BaseModel]]:
    """The models in a field's type, one or a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [part for one in get_args(annotation) for part in _parts(one)]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "needed"
    value = TypeAdapter(Any).dump_python(info.default, mode="json", by_alias=True)
    return "" if value in (None, []) else f"`{json.dumps(value)}`".replace('"', "")


def _table(name: str, text: str) -> str:
    scaling = Scaling.model_validate(yaml.safe_load(text)["scaling"])
    pool, seconds = EXAMPLES[name](scaling)
    rows = [
        "| time | ready | pressure | replicas | reason |",
        "|---|---|---|---|---|",
    ]
    last = None
    for at, ready, decision in pool.run(seconds, EVERY_S.get(name, 5)):
        if last in (None, decision.desired) and not (last is None and seconds <= 5):
            last = decision.desired
            continue
        change = f"{decision.current} → {decision.desired}"
        pressure = "" if decision.pressure is None else f"{decision.pressure:.2f}"
        rows.append(f"| {_time(at)} | {ready} | {pressure} | {change} | {decision.reason} |")
        last = decision.desired
    return "\n".join(rows) + "\n\n"


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 3600 else f"{seconds / 3600:.1f} h"
