"""ThunderAgent's scheduler with its defaults: whole agents run or are paused, by the KV tokens that
they hold at their backend.

An agent is a *program*. It reasons while one of its calls is at its backend, and acts between two
calls. A backend is used by what its active programs hold, reasoning and acting ones alike, and 100
tokens more for each. Every 5 s the scheduler

- resumes paused programs while they fit: first those that wait with a call, then new ones, then
  those that still act; the shortest of each first. Those chosen are placed from the longest on,
  each at the backend with the most room. One that has waited for 30 minutes is resumed anyway;
- pauses programs of a backend that is used beyond its capacity, until what is left fits: acting
  ones first, then reasoning ones, which run until their call has ended; the shortest of each first.

A paused program belongs to no backend, and its calls wait in the scheduler. A new program begins at
once where there is room and none waits. A client releases its program at the session's end.

Sources: https://arxiv.org/abs/2602.13692 (section 4: shortest-first eviction, the waiting queue of
all backends) and https://github.com/ThunderAgent-org/ThunderAgent wiki/Scheduler.md and
wiki/Configuration.md (`--scheduler-interval` 5, `--acting-token-weight` 1.0, no
`--use-acting-token-decay`, 100 tokens a program, 30 minutes).

Simplified: tokens are known, not estimated from characters. Of a beginning that programs share, the
first one holds all (there, what the engine uses less than its programs hold is taken off). A
session's sub-agents belong to its program, which holds what its last call did. A request of no
session, or one that engines refuse because it is too long, goes to the backend with the fewest
requests. Other clients than these may not release their
programs; tools' resources are not simulated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.core.route import Route
from pando_sim.fleet.routing.interfaces import HELD, Held, Member, Question
from pando_sim.policies.local import route_to
from pando_sim.policies.sent import split
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

EVERY_S = 5.0
BUFFER_TOKENS = 100  # per active program
LONGEST_WAIT_S = 1800.0


@dataclass(slots=True, eq=False)
class Program:
    own_tokens: int = 0  # beyond the beginning that earlier programs had
    shared_tokens: int = 0
    backend: str = ""  # empty while it is paused
    has_run: bool = False
    is_marked: bool = False  # is paused when its calls have ended
    calls: int = 0  # at the backend
    coming: set[int] = field(default_factory=set)  # numbers of requests that have been resumed
    waiting: list[int] = field(default_factory=list)  # of its held requests
    since_s: float = 0.0  # when the first of these came

    @property
    def reasons(self) -> bool:
        return bool(self.calls or self.coming)

    @property
    def needs(self) -> int:
        return self.own_tokens + BUFFER_TOKENS

    @property
    def urgency(self) -> tuple[bool, bool, int]:
        """The least is resumed first."""
        return not self.waiting, not self.has_run, self.own_tokens

    def holds(self, tokens: int) -> None:
        self.own_tokens = max(0, tokens - self.shared_tokens)


@dataclass(slots=True)
class ProgramCall:
    """A program's call at its backend, as the lease of its route."""

    program: Program
    tokens: int  # of prompt and answer

    def answered(self, *, complete: bool) -> None:
        self.program.holds(self.tokens)

    def correct(self, chunks: int) -> None:
        """Does nothing: no cache is counted on."""

    def close(self) -> None:
        self.program.calls -= 1
        if self.program.is_marked and not self.program.reasons:
            self.program.is_marked, self.program.backend = False, ""


class ThunderAgent:
    def __init__(self, context: "Context", longest_tokens: int) -> None:
        """`longest_tokens` is the limit of prompt and answer, above which an engine refuses."""
        self._context = context
        self._longest_tokens = longest_tokens
        self._programs: dict[str, Program] = {}  # by session
        self._began: set[bytes] = set()  # chunks with which a program has begun
        context.session_ended = self._release
        context.after(EVERY_S, self._schedule)

    async def place(self, question: Question) -> Route | Held:
        tokens = question.prompt_tokens + question.request.output_tokens
        if not question.request.session or tokens > self._longest_tokens:
            fewest = min(question.allowed, key=self._context.in_flight)
            return route_to(question, fewest, 0)
        program = self._program(question)
        program.coming.discard(question.request.number)
        allowed = {member.name: member for member in question.allowed}
        if not program.backend and not program.has_run and not self._waits():
            room = self._room(question.allowed)
            most = max(room, key=room.__getitem__)
            if program.needs <= room[most]:
                program.backend = most
        if program.backend not in allowed:
            program.backend = ""
            self._hold(program, question.request.number)
            return HELD
        program.has_run = True
        program.calls += 1
        return route_to(question, allowed[program.backend], 0, ProgramCall(program, tokens))

    def close(self) -> None:
        pass

    def _program(self, question: Question) -> Program:
        program = self._programs.get(question.request.session)
        if program is None:
            program = self._programs[question.request.session] = Program()
            keys = split(question.keys)
            known = next((at for at, key in enumerate(keys) if key not in self._began), len(keys))
            shared_bytes = known * CHUNK_BYTES
            program.shared_tokens = (
                shared_bytes * question.prompt_tokens // max(question.prompt_bytes, 1)
            )
            self._began.update(keys)
        program.holds(question.prompt_tokens)
        return program

    def _hold(self, program: Program, number: int) -> None:
        if not program.waiting:
            program.since_s = self._context.monotonic_s()
        program.waiting.append(number)

    def _waits(self) -> bool:
        return any(program.waiting for program in self._programs.values())

    def _room(self, members: Iterable[Member]) -> dict[str, int]:
        """Tokens by backend; below 0 where programs have outgrown it."""
        room = {member.name: member.beat.capacity_tokens for member in members}
        for program in self._programs.values():
            if program.backend in room and not program.is_marked:
                room[program.backend] -= program.needs
        return room

    def _schedule(self) -> None:
        self._context.after(EVERY_S, self._schedule)
        self._leave_gone()
        room = self._room(self._context.members())
        if room:
            self._resume(room)
            self._pause(room)

    def _resume(self, room: dict[str, int]) -> None:
        left, chosen = sum(max(0, tokens) for tokens in room.values()), []
        paused = [program for program in self._programs.values() if not program.backend]
        for program in sorted(paused, key=lambda program: program.urgency):
            if program.needs <= left:
                left -= program.needs
                chosen.append(program)
        for program in sorted(chosen, key=lambda program: -program.own_tokens):
            most = max(room, key=room.__getitem__)
            if program.needs <= room[most]:
                self._go_on(program, most, room)
        longest_s = self._context.monotonic_s() - LONGEST_WAIT_S
        for program in paused:
            if program.waiting and program.since_s <= longest_s:
                self._go_on(program, max(room, key=room.__getitem__), room)

    def _go_on(self, program: Program, backend: str, room: dict[str, int]) -> None:
        program.backend = backend
        room[backend] -= program.needs
        waiting, program.waiting = program.waiting, []
        program.coming.update(waiting)
        for number in waiting:
            self._context.go_on(number)

    def _pause(self, room: dict[str, int]) -> None:
        active = [each for each in self._programs.values() if each.backend and not each.is_marked]
        for program in sorted(active, key=lambda each: (each.reasons, each.own_tokens)):
            if room.get(program.backend, 0) < 0:
                room[program.backend] += program.needs
                if program.reasons:
                    program.is_marked = True
                else:
                    program.backend = ""

    def _leave_gone(self) -> None:
        """Programs of a backend that is gone are paused."""
        there = {member.name for member in self._context.members()}
        for program in self._programs.values():
            if program.backend and program.backend not in there:
                program.backend, program.is_marked = "", False

    def _release(self, session: str) -> None:
        self._programs.pop(session, None)


THUNDER_AGENT = SimulatedPolicy(
    name="thunder_agent",
    whose="ThunderAgent",
    help="the backend where its agent runs; agents of which a backend cannot hold all are paused,"
    " the shortest that act first, and resumed where there is room",
    source="[its paper](https://arxiv.org/abs/2602.13692) and"
    " [scheduler](https://github.com/ThunderAgent-org/ThunderAgent/blob/main/wiki/Scheduler.md)",
    make=lambda context, spec: ThunderAgent(context, spec.worker.longest_tokens),
    is_for_sessions=True,
)
