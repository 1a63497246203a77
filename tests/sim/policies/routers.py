"""Routers that query policies; their knowledge is set by hand."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.core.route import Route
from pando_sim.fleet.routing.context import Context
from pando_sim.fleet.routing.interfaces import Member, Policy, Question
from pando_sim.request import Request
from tests.sim.fleet.world import request


def beat(name: str, **values: object) -> Heartbeat:
    return replace(
        Heartbeat(
            replica=name,
            incarnation=f"{name}.1",
            url="",
            model="m",
            state=ReplicaState.READY,
            capacity_tokens=16_000,
        ),
        **values,  # type: ignore[arg-type]
    )


@dataclass
class Known(Context):
    """Has only the members that the policies here use."""

    beats: dict[str, Heartbeat]
    number: int = 0
    pool: str = "p"
    random: Random = field(default_factory=lambda: Random(1))
    time_s: float = 0.0
    loads: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    looks: int = 0

    def monotonic_s(self) -> float:
        return self.time_s

    def members(self) -> Sequence[Member]:
        return tuple(Member(self.beats[name]) for name in sorted(self.beats))

    def in_flight(self, member: Member) -> int:
        return self.loads.get(member.name, 0)

    def look(self, replica: str) -> Heartbeat | None:
        self.looks += 1
        return self.beats.get(replica)

    def cached_tokens(self, replica: str, tokens: NDArray[np.int32], adapter: str) -> int:
        return self.cached.get(replica, 0)


def fleet(*names: str, **values: object) -> Known:
    return Known({name: beat(name) for name in names}, **values)  # type: ignore[arg-type]


def question(known: Known, asked: Request, *, without: Sequence[str] = ()) -> Question:
    prompt = asked.prompt
    return Question(
        request=asked,
        prompt_tokens=prompt.num_tokens,
        prompt_bytes=prompt.num_bytes,
        keys=prompt.keys(),
        output_tokens=10,
        lease=f"{known.number}.{asked.number}",
        allowed=tuple(m for m in known.members() if m.name not in without),
    )


def ask(policy: Policy, known: Known, *blocks: int, without: Sequence[str] = ()) -> Route:
    """The route of a prompt of these blocks, each one chunk of 64 tokens."""
    found = asyncio.run(policy.place(question(known, request(0, 0.0, *blocks), without=without)))
    assert isinstance(found, Route)
    return found


def went(policy: Policy, known: Known, *blocks: int, without: Sequence[str] = ()) -> str:
    return ask(policy, known, *blocks, without=without).replica
