"""What happens to a request: what replicas report, and the events that its observer receives."""

from enum import Enum, auto

import msgspec

from pando_router.core.route import Route


class CacheReport(msgspec.Struct, frozen=True, gc=False):
    """How many tokens of a prompt a replica had cached, and how many the prompt has."""

    cached_tokens: int
    prompt_tokens: int


class Failure(Enum):
    """How a replica fails a request."""

    NO_ANSWER = auto()  # its connection broke, or it answered that it cannot serve
    SILENT = auto()  # it has the request, and no answer came in time
    CUT_OFF = auto()  # its connection broke amid the answer
    STALLED = auto()  # its answer stood still for too long

    @property
    def is_mid_stream(self) -> bool:
        return self in (Failure.CUT_OFF, Failure.STALLED)


class Head(msgspec.Struct, frozen=True, gc=False):
    """What is known of an answer when its first byte is here."""

    status: int
    report: CacheReport | None = None
    complete: bool = False  # the whole answer is here
    is_stream: bool = False  # of events
    retry_after_s: int = 1  # of a 429
    first_bytes: bytes = b""


class Observer:
    """Is told what becomes of one request; a subclass overrides the events that it wants.

    Events come in the order in which they happen. `placed` begins a try, of which there may be
    several.
    """

    __slots__ = ()

    def placed(self, route: Route) -> None:
        """A replica is found; the request goes there next."""

    def not_sent(self, route: Route) -> None:
        """No connection to the replica was free: it never saw the request."""

    def was_busy(self, route: Route) -> None:
        """The replica answered 429; another one is asked."""

    def failed(self, route: Route, error: str, how: Failure) -> None:
        """The replica failed; another one may be asked."""

    def retried(self, route: Route, reason: str) -> None:
        """`route` follows a try that ended by `reason`."""

    def retry_refused(self, route: Route) -> None:
        """The try at `route` failed, and the budget of retries is spent."""

    def answered(self, route: Route, head: Head) -> None:
        """The first byte of an answer that goes to the client."""

    def cached(self, route: Route, report: CacheReport, *, was_cut: bool) -> None:
        """The replica reports its cache; `was_cut` says that the shared tree knew less well."""
