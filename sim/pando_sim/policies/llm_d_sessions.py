"""The bound on active sessions that llm-d's users propose, on top of its scorers.

The router counts the KV tokens of each session, those of its last prompt and answer, at the replica
where the session is active. It is active until it has sent nothing for 60 s.

- Calls of active sessions always pass, to the session's replica.
- A replica is saturated when its active sessions, running and idle, hold more than its capacity.
  Then those that are idle are paused, the longest idle first, until the others fit.
- Calls of other sessions wait until a replica has room for their prompt: paused and idle ones
  before new ones, then by arrival; nobody overtakes the first. Of the replicas with room llm-d's
  scorers choose (`llm_d.py`).

Sources: https://github.com/llm-d/llm-d-router issues 2348 (to bound how many sessions are active)
and 2964 (how it is counted, who is paused, and who goes first). Neither says when a session that
sends nothing any more ends to be active; 60 s are ours.

Simplified: tokens are known when a call arrives. A request of no session, or one that engines
refuse because it is too long, goes where the scorers choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pando_router.core.route import Route
from pando_sim.fleet.routing.interfaces import HELD, Held, Member, Question
from pando_sim.policies.llm_d import Scorers
from pando_sim.policies.local import route_to
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

IDLE_S = 60.0


@dataclass(slots=True, eq=False)
class KnownSession:
    tokens: int = 0
    replica: str = ""  # where it is active; empty: it is not
    is_back: bool = False  # it was active before
    calls: int = 0  # at the replica
    idle_s: float = 0.0  # since when it has none


@dataclass(slots=True)
class SessionCall:
    """A session's call at its replica, as the lease of its route."""

    policy: "ActiveSessions"
    session: KnownSession
    tokens: int  # of prompt and answer

    def answered(self, *, complete: bool) -> None:
        self.session.tokens = self.tokens

    def correct(self, chunks: int) -> None:
        """Does nothing: the scorers know only what was sent."""

    def close(self) -> None:
        self.session.calls -= 1
        self.policy.call_ended(self.session)


class ActiveSessions:
    def __init__(self, context: "Context", page_size: int, longest_tokens: int) -> None:
        """`longest_tokens` is the limit of prompt and answer, above which an engine refuses."""
        self._context = context
        self._longest_tokens = longest_tokens
        self._scorers = Scorers(context, page_size)
        self._sessions: dict[str, KnownSession] = {}  # by name
        self._waiting: list[tuple[KnownSession, Question]] = []  # as they came

    async def place(self, question: Question) -> Route | Held:
        tokens = question.prompt_tokens + question.request.output_tokens
        if not question.request.session or tokens > self._longest_tokens:
            return route_to(question, *self._scorers.choose(question))
        session = self._sessions.setdefault(question.request.session, KnownSession())
        session.tokens = question.prompt_tokens
        own = tuple(member for member in question.allowed if member.name == session.replica)
        if own:
            chosen = self._scorers.choose(replace(question, allowed=own))
        else:
            session.replica = ""
            found = self._activate(session, question) if self._is_first(session) else None
            if found is None:
                self._waiting.append((session, question))
                return HELD
            chosen = found
        member, chunks = chosen
        session.calls += 1
        self._pause_idle(member)
        return route_to(question, member, chunks, SessionCall(self, session, tokens))

    def close(self) -> None:
        pass

    def call_ended(self, session: KnownSession) -> None:
        if not session.calls:
            session.idle_s = self._context.monotonic_s()
            self._context.after(IDLE_S, self._let_in)
        for member in self._context.members():
            if member.name == session.replica:
                self._pause_idle(member)
        self._let_in()

    def _let_in(self) -> None:
        """Calls that wait and have room now."""
        longest_s = self._context.monotonic_s() - IDLE_S
        for session in self._sessions.values():
            if session.replica and not session.calls and session.idle_s <= longest_s:
                session.replica = ""
        while self._waiting:
            session, question = first = self._first()
            now = replace(question, allowed=tuple(self._context.members()))
            if not session.replica and self._activate(session, now) is None:
                return
            self._waiting.remove(first)
            self._context.go_on(question.request.number)

    def _first(self) -> tuple[KnownSession, Question]:
        returning = (each for each in self._waiting if each[0].is_back)
        return next(returning, self._waiting[0])

    def _is_first(self, session: KnownSession) -> bool:
        return not self._waiting or (session.is_back and not self._first()[0].is_back)

    def _activate(self, session: KnownSession, question: Question) -> tuple[Member, int] | None:
        """Where it is active from now on, and the chunks there; None if no replica has room."""
        roomy = tuple(one for one in question.allowed if self._has_room(one, session.tokens))
        if not roomy:
            return None
        member, chunks = self._scorers.choose(replace(question, allowed=roomy))
        session.replica, session.is_back = member.name, True
        session.idle_s = self._context.monotonic_s()
        return member, chunks

    def _has_room(self, member: Member, tokens: int) -> bool:
        return _tokens(self._active(member)) + tokens <= member.beat.capacity_tokens

    def _pause_idle(self, member: Member) -> None:
        active = self._active(member)
        over = _tokens(active) - member.beat.capacity_tokens
        for session in sorted(active, key=lambda session: session.idle_s):
            if over > 0 and not session.calls:
                session.replica = ""
                over -= session.tokens

    def _active(self, member: Member) -> list[KnownSession]:
        return [each for each in self._sessions.values() if each.replica == member.name]


def _tokens(sessions: Sequence[KnownSession]) -> int:
    return sum(session.tokens for session in sessions)


LLM_D_SESSIONS = SimulatedPolicy(
    name="llm_d_sessions",
    whose="llm-d with a bound on active sessions, as proposed",
    help="its session's replica; a session that is not active waits until a replica has room for"
    " its tokens, and is active until it is idle for 60 s or the replica's sessions outgrow it",
    source="issues [2348](https://github.com/llm-d/llm-d-router/issues/2348) and"
    " [2964](https://github.com/llm-d/llm-d-router/issues/2964)",
    make=lambda context, spec: ActiveSessions(
        context, spec.worker.page_size, spec.worker.longest_tokens
    ),
    is_for_sessions=True,
)
