"""`SessionArrivals`: keeps a number of sessions running, whose calls wait for each other."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from pando_sim.records import Outcome, Served, SessionCounts
from pando_sim.request import Request
from pando_sim.session import Conversation, Crowd, Session
from pando_sim.timeline import Timeline

AGAIN_S = 0.5
"""After a failure, an agent sends its call again after this time, as OpenAI's client does."""


@dataclass(slots=True, eq=False)
class _Running:
    session: Session
    open: int = 0  # conversations that have begun and not ended
    is_cut: bool = False
    is_late: bool = False  # a call of it would come after the time for calls


@dataclass(frozen=True, slots=True)
class _Position:
    running: _Running
    conversation: Conversation
    place: int  # of its call in the conversation


class SessionArrivals:
    """All sessions begin at the start. An agent whose call is refused sends it again when the
    router says, until it is answered; a call that no replica accepts ends its session.

    `session_ended` is called with the name of each session of which nothing comes any more.
    """

    def __init__(
        self,
        crowd: Crowd,
        timeline: Timeline,
        arrive: Callable[[Request], Awaitable[None]],
        session_ended: Callable[[str], None],
    ) -> None:
        self._sessions = crowd.sessions()
        self._crowd = crowd
        self._timeline = timeline
        self._arrive = arrive
        self._session_ended = session_ended
        self._turns: dict[int, tuple[_Position, Request]] = {}  # of the requests sent, by number
        self._sent = 0
        self._ended = 0
        self._cut = 0

    def begin(self) -> None:
        for _ in range(self._crowd.at_once):
            self._next_session()

    @property
    def over(self) -> bool:
        return not self._turns and self._timeline.now_s >= self._crowd.until_s

    @property
    def counts(self) -> SessionCounts:
        crowd = self._crowd
        return SessionCounts(
            at_once=crowd.at_once, until_s=crowd.until_s, ended=self._ended, cut=self._cut
        )

    def ended(self, served: Served) -> None:
        turn, request = self._turns.pop(served.number)
        if served.outcome is Outcome.FINISHED:
            self._answered(turn)
            return
        again_s = served.retry_after_s if served.outcome is Outcome.REFUSED else AGAIN_S
        if again_s == again_s:
            self._after(turn.running, again_s, partial(self._send_again, turn, request))
        else:
            turn.running.is_cut = True
            self._close(turn.running)

    def _next_session(self) -> None:
        session = next(self._sessions)
        self._begin(_Running(session), session.conversations[0])

    def _begin(self, running: _Running, conversation: Conversation) -> None:
        running.open += 1
        self._plan(_Position(running, conversation, 0))

    def _answered(self, turn: _Position) -> None:
        running, conversations = turn.running, turn.running.session.conversations
        if running.is_cut:
            self._close(running)
            return
        if turn.conversation is conversations[0]:
            for subagent in conversations[1:]:
                if subagent.after == turn.place:
                    self._begin(running, subagent)
        if turn.place + 1 < len(turn.conversation.calls):
            self._plan(replace(turn, place=turn.place + 1))
        else:
            self._close(running)

    def _close(self, running: _Running) -> None:
        """One of its conversations is over."""
        running.open -= 1
        if running.open:
            return
        self._session_ended(running.session.name)
        if running.is_late or self._timeline.now_s >= self._crowd.until_s:
            return
        self._ended += not running.is_cut
        self._cut += running.is_cut
        self._next_session()

    def _plan(self, turn: _Position) -> None:
        pause_s = turn.conversation.calls[turn.place].pause_s
        self._after(turn.running, pause_s, partial(self._send, turn))

    def _after(
        self, running: _Running, pause_s: float, send: Callable[[], Awaitable[None]]
    ) -> None:
        """Sends a call, unless the time for that is over."""
        if self._timeline.now_s + pause_s < self._crowd.until_s:
            self._timeline.after(pause_s, send)
        else:
            running.is_late = True
            self._close(running)

    async def _send(self, turn: _Position) -> None:
        call = turn.conversation.calls[turn.place]
        request = Request(
            number=self._sent,
            at_s=self._timeline.now_s,
            prompt=call.prompt,
            output_tokens=call.output_tokens,
            session=turn.running.session.name,
            turn=turn.place,
            repeated_tokens=call.repeated_tokens,
        )
        await self._sends(turn, request)

    async def _send_again(self, turn: _Position, request: Request) -> None:
        await self._sends(turn, replace(request, number=self._sent))

    async def _sends(self, turn: _Position, request: Request) -> None:
        self._turns[request.number] = turn, request
        self._sent += 1
        await self._arrive(request)
