"""Routers that query policies; their knowledge is set by hand."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.core.route import Route
from pando_sim.fleet.routing.context import Context
from pando_sim.fleet.routing.interfaces import Held, Member, Policy, Question
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
    gone_on: list[int] = field(default_factory=list)  # numbers of requests that were held
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go_on = self.gone_on.append
        self.session_ended = lambda name: None

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.timers.append((self.time_s + delay_s, act))

    def passes(self, seconds: float) -> list[int]:
        """Runs what is due meanwhile; the requests that go on."""
        until_s, self.gone_on[:] = self.time_s + seconds, []
        while due := [timer for timer in self.timers if timer[0] <= until_s]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.time_s = first[0]
            first[1]()
        self.time_s = until_s
        return list(self.gone_on)

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


@dataclass
class Agents:
    """Agents whose calls a policy may hold; each has a prompt of its own."""

    policy: Policy
    known: Known
    calls: int = 0

    def call(self, name: str, tokens: int) -> Route | Held:
        """The next call of the agent, of so many tokens with its answer of 64; `calls` is its
        number. Asked again, a held one has a new number."""
        self.calls += 1
        blocks = tuple(sum(name.encode()) * 1000 + at for at in range(tokens // 64 - 1))
        asked = request(self.calls, self.known.time_s, *blocks, output=64)
        asked = replace(asked, session=name)
        found = asyncio.run(self.policy.place(question(self.known, asked)))
        assert isinstance(found, (Route, Held))
        return found

    def begins(self, name: str, tokens: int) -> Route:
        """A call that is not held."""
        found = self.call(name, tokens)
        assert isinstance(found, Route), f"{name} is held"
        return found

    def acts(self, name: str, tokens: int) -> str:
        """A call that is not held and has been answered; where."""
        route = self.begins(name, tokens)
        ends(route)
        return route.replica

    def waits(self, name: str, tokens: int) -> int:
        """The number of a call that is held."""
        assert isinstance(self.call(name, tokens), Held), f"{name} is not held"
        return self.calls


def ends(route: Route) -> None:
    assert route.lease is not None
    route.lease.answered(complete=True)
    route.lease.close()
