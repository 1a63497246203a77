"""What was sent of a stream, as far as a continuation must match it."""

from dataclasses import dataclass, field
from typing import Any

from pando_router.migration.errors import DivergedError

Channel = str | tuple[int, str]
"""Where an answer's text belongs: "content", "text", or a part of the tool call with an index."""


@dataclass(slots=True)
class Sent:
    """Filled by a form's `read`, event by event, with what is sent to the client."""

    identity: dict[str, Any] = field(default_factory=dict)  # fields shared by all its events
    texts: dict[Channel, str] = field(default_factory=dict)
    has_role: bool = False
    finished: bool = False  # the finish reason was sent
    has_usage: bool = False  # the separate usage event was sent
    done: bool = False  # the last event was sent
    # From the last event with text, as tokens without text are generated again.
    text_tokens: int | None = None
    text_ids: list[int] = field(default_factory=list)
    cached_tokens: int | None = None  # of the prompt, as first reported
    token_ids: list[int] | None = None  # in order, if the replica reports them
    scored: int = 0  # tokens with log-probabilities sent, including those of an echoed prompt
    scores: dict[str, list[Any]] = field(default_factory=dict)  # if each event holds all so far
    # Of typed streams: the marks between texts, whether a part of the answer has begun, the number
    # of the last event, and the fields by which a Pando worker resumes the answer with its ids.
    marks: list[tuple[Any, ...]] = field(default_factory=list)
    has_parts: bool = False
    number: int = -1
    resumed: dict[str, Any] = field(default_factory=dict)

    def add(self, channel: Channel, text: str) -> None:
        self.texts[channel] = self.texts.get(channel, "") + text

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the answer itself was sent."""
        return not any(self.texts.values()) and not self.has_parts and not self.finished

    def text(self, *channels: Channel) -> str:
        return "".join(self.texts.get(channel, "") for channel in channels)


@dataclass(slots=True)
class Owed:
    """The text that the continuation repeats before any new text, by channel."""

    texts: dict[Channel, str] = field(default_factory=dict)

    def new_part(self, channel: Channel, text: str) -> str:
        """The part of the text that the client does not have yet. Raises DivergedError."""
        owed = self.texts.get(channel, "")
        if not owed:
            return text
        length = min(len(owed), len(text))
        if owed[:length] != text[:length]:
            raise DivergedError("the new replica's text differs from what was sent before")
        self.texts[channel] = owed[length:]
        return text[length:]

    def settle(self) -> None:
        """Called at the end. Raises DivergedError if not all sent text was repeated."""
        if any(self.texts.values()):
            raise DivergedError("the new replica's text is shorter than what was sent before")
