"""A request's events: what replicas report, and the calls that its observer receives."""

from enum import Enum, auto

import msgspec

from pando_router.core.route import Route


class CacheReport(msgspec.Struct, frozen=True, gc=False):
    """How many of a prompt's tokens a replica had cached, as the replica reports it."""

    cached_tokens: int
    prompt_tokens: int


class Failure(Enum):
    """How a replica fails a request."""

    NO_ANSWER = auto()  # the connection broke before an answer, or the answer was a server error
    SILENT = auto()  # it has the request but did not answer in time
    CUT_OFF = auto()  # the connection broke mid-answer
    STALLED = auto()  # the answer sent nothing for too long

    @property
    def is_mid_stream(self) -> bool:
        return self in (Failure.CUT_OFF, Failure.STALLED)


class Head(msgspec.Struct, frozen=True, gc=False):
    """The start of an answer, up to its first bytes."""

    status: int
    report: CacheReport | None = None
    complete: bool = False  # the whole answer has arrived
    is_stream: bool = False  # server-sent events
    retry_after_s: int = 1  # for a 429
    first_bytes: bytes = b""


class Observer:
    """Receives the events of one request; a subclass overrides those that it needs.

    Events arrive in the order in which they happen. Each `placed` begins a new try.
    """

    __slots__ = ()

    def placed(self, route: Route) -> None:
        """A replica was chosen; the request will be sent there."""

    def not_sent(self, route: Route) -> None:
        """No connection to the replica was free, so it never received the request."""

    def was_busy(self, route: Route) -> None:
        """The replica answered 429; the request is tried at another one."""

    def failed(self, route: Route, error: str, how: Failure) -> None:
        """The replica failed; the request may be tried at another one."""

    def retried(self, route: Route, reason: str) -> None:
        """The request is retried at `route` because its last try ended with `reason`."""

    def retry_refused(self, route: Route) -> None:
        """The try at `route` failed, and the retry budget is spent."""

    def answered(self, route: Route, head: Head) -> None:
        """The first byte arrived of the answer that will be relayed to the client."""

    def cached(self, route: Route, report: CacheReport, *, was_cut: bool) -> None:
        """The replica reported its cached tokens.

        `was_cut` is true if the shared tree expected more and was corrected.
        """
