"""What migration needs to know about an endpoint: where its prompt is, and how to read its events.

An endpoint whose streams may migrate defines a `Form`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pando_router.migration.errors import RefusedError
from pando_router.migration.events import DONE_EVENT, Event
from pando_router.migration.sent import Owed, Sent

Body = dict[str, Any]


@dataclass(slots=True)
class Fit:
    """How to fit a continuation to what was sent before it."""

    owed: Owed = field(default_factory=Owed)
    before: str = ""  # text that the continuation does not repeat, if its events hold all text
    ids_before: list[int] = field(default_factory=list)  # likewise
    tokens_before: int = 0  # output tokens that the continuation counts as prompt
    cached_tokens: int | None = None  # of the prompt, as the first replica reported
    scores_owed: int = 0  # log-probabilities that the continuation repeats before any new ones
    scores_before: dict[str, list[Any]] = field(default_factory=dict)  # those it does not repeat
    marks_owed: list[tuple[Any, ...]] = field(default_factory=list)  # as texts: before new ones

    def counts(self, usage: dict[str, Any]) -> None:
        """Moves tokens that the continuation counts as prompt to the output; the sum stays."""
        if self.tokens_before:
            usage["completion_tokens"] += self.tokens_before
            usage["prompt_tokens"] -= self.tokens_before


class Events(Protocol):
    """Reads and adapts an endpoint's events."""

    def read(self, event: Event, sent: Sent) -> None:
        """Records in `sent` what the client receives."""
        ...

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        """All token ids up to this event, including `before`; None if not reported."""
        ...

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool:
        """Changes an event in place so that it follows what the client has: the same identity, one
        role, no repeated text or log-probabilities, one finish reason, and the usage of the whole.

        Returns whether anything is left to send. Raises DivergedError.
        """
        ...


def append(body: Body, name: str, text: str) -> Body:
    """Appends to a prompt that is a text. Raises RefusedError for any other prompt."""
    if not isinstance(body[name], str):
        raise RefusedError("text cannot be appended to token ids")
    return {name: body[name] + text}


@dataclass(frozen=True, slots=True)
class Form:
    events: Events
    prompt: tuple[str, ...]  # fields of the body; the first one present holds the prompt
    # From the body, that field and the answer's text so far: the fields of the continuation; None
    # if only Pando's workers can continue.
    with_text: Callable[[Body, str, str], Body] | None = append
    sampling: str = ""  # the field that holds sampling parameters; empty: the body itself
    whole_text: bool = False  # an event holds all text so far, not only the new text
    continues_scores: bool = True  # whether a continuation can have log-probabilities
    named: bool = False  # an event's `type` is also its name in the stream
    last_event: bytes = DONE_EVENT  # it follows the finish reason, and the usage if there is one
    # The beginning of the event by which an engine reports that it is gone although its HTTP server
    # is not, and what is in it. Generated text cannot look like it: within JSON strings quotes and
    # line ends are escaped.
    error_event: bytes = b'data: {"error":'
    gone: tuple[bytes, ...] = (b"service_unavailable_error",)

    def gone_at(self, data: bytes) -> int:
        """Where an engine reports that it is gone; -1 if it does not."""
        found = data.find(self.error_event)
        return found if found >= 0 and any(word in data[found:] for word in self.gone) else -1

    def sampling_of(self, body: Body) -> Body:
        inner = body.get(self.sampling)
        return inner if isinstance(inner, dict) else body
