"""What migration must know of an endpoint: how its requests hold a prompt, what its events say.

An endpoint whose streams may go on at another replica states its `Form`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pando_router.migration.errors import RefusedError
from pando_router.migration.events import Event
from pando_router.migration.sent import Owed, Sent

Body = dict[str, Any]


@dataclass(slots=True)
class Fit:
    """How a continuation fits to what was sent before it."""

    owed: Owed = field(default_factory=Owed)
    before: str = ""  # text that the continuation does not repeat, where its events hold all text
    ids_before: list[int] = field(default_factory=list)  # likewise
    tokens_before: int = 0  # output tokens that the continuation takes for prompt
    cached_tokens: int | None = None  # of the prompt, as the first replica told
    scores_owed: int = 0  # log-probabilities that the continuation says again before any new ones
    scores_before: dict[str, list[Any]] = field(default_factory=dict)  # that it does not repeat

    def counts(self, usage: dict[str, Any]) -> None:
        """What the continuation took for prompt is output; their sum stays."""
        if self.tokens_before:
            usage["completion_tokens"] += self.tokens_before
            usage["prompt_tokens"] -= self.tokens_before


class Events(Protocol):
    """The events of a stream."""

    def read(self, event: Event, sent: Sent) -> None:
        """Writes down what goes to the client."""
        ...

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        """All ids up to this event, `before` among them; None where they are not told."""
        ...

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool:
        """Changes an event in place so that it follows what the client has: the same identity, one
        role, no text and no log-probabilities twice, the finish reason once, and the usage of the
        whole. Whether anything is left to send. Raises DivergedError."""
        ...


def append(body: Body, name: str, text: str) -> Body:
    """A prompt that is a text, and goes on. Raises RefusedError for another one."""
    if not isinstance(body[name], str):
        raise RefusedError("text cannot be appended to token ids")
    return {name: body[name] + text}


@dataclass(frozen=True, slots=True)
class Form:
    events: Events
    prompt: tuple[str, ...]  # fields of the body: the first one that is given holds the prompt
    # Of the body, that field and the answer's text so far: fields by which another replica goes on.
    with_text: Callable[[Body, str, str], Body] = append
    sampling: str = ""  # the field that says how to sample; empty: the body itself does
    whole_text: bool = False  # an event holds all text so far, not only what is new

    def sampling_of(self, body: Body) -> Body:
        inner = body.get(self.sampling)
        return inner if isinstance(inner, dict) else body
