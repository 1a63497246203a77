"""A rule played with a number of sessions, and what came of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pando.sim import work
from pando.sim.plan import make_plan
from pando_sim.session_rules import SESSION_RULES
from pando_sim.settings import SimSettings

CONTEXT_TOKENS = 200_000
"""Of the models that most of the agents were recorded with; a longer call ends its session."""

COUNTS = (40, 80, 160, 320)

RIVALS = ("smg", "llm_d", "dynamo", "llm_d_sessions", "thunder_agent")
"""Policies of other routers, with workers whose order is `lpm`."""

RULES = (*SESSION_RULES, *RIVALS)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    sessions: int
    replicas: int
    capacity_tokens: int
    hours: float


class Play(msgspec.Struct, frozen=True, kw_only=True):
    cell: Cell
    calls_per_hour: float
    sessions_per_hour: float
    hit_rate: float
    ceiling: float  # of the hit rate
    first_p99_s: float
    later_p50_s: float
    later_p99_s: float
    longest_s: float  # to a first token
    recomputed: float
    lost: int
    wall_s: float


def play(cell: Cell, trace: Path) -> Play:
    is_rival = cell.rule in RIVALS
    settings = SimSettings(
        trace=(str(trace),),
        policy=(cell.rule if is_rival else "cache_aware",),
        session_rule=("lpm" if is_rival else cell.rule,),
        sessions=cell.sessions,
        session_hours=cell.hours,
        replicas=cell.replicas,
        capacity_tokens=cell.capacity_tokens,
        context_length=CONTEXT_TOKENS,
        csv=False,
    )
    (task,) = make_plan(settings).tasks
    found = work.digested(task, asyncio.run(work.run(task))).statistics
    sessions, ttft = found.sessions, found.ttft
    assert sessions is not None and ttft is not None and found.hit_rate is not None
    assert sessions.first_ttft is not None and sessions.later_ttft is not None
    assert sessions.repeated_share is not None and sessions.recomputed_share is not None
    return Play(
        cell=cell,
        calls_per_hour=sessions.calls_per_hour,
        sessions_per_hour=sessions.sessions_per_hour,
        hit_rate=found.hit_rate,
        ceiling=sessions.repeated_share,
        first_p99_s=sessions.first_ttft.p99,
        later_p50_s=sessions.later_ttft.p50,
        later_p99_s=sessions.later_ttft.p99,
        longest_s=ttft.most,
        recomputed=sessions.recomputed_share,
        lost=found.refused + found.failed,
        wall_s=found.wall_s,
    )


class Results:
    """A file of plays, a JSON line each; an interrupted benchmark goes on where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found = {one.cell: one for one in self._read()}

    def add(self, one: Play) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(one) + b"\n")
        self.found[one.cell] = one

    def _read(self) -> Iterator[Play]:
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                yield msgspec.json.decode(line, type=Play)
