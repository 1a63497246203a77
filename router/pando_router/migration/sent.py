"""What a client has of its stream, as far as a continuation must fit to it."""

from dataclasses import dataclass, field
from typing import Any

from pando_router.migration.errors import DivergedError

Channel = str | tuple[int, str]
"""Where text of an answer belongs: "content", "text", or a part of the call with this number."""


@dataclass(slots=True)
class Sent:
    """Filled by a form's `read`, event by event, with what goes to the client."""

    identity: dict[str, Any] = field(default_factory=dict)  # what all events of it share
    texts: dict[Channel, str] = field(default_factory=dict)
    has_role: bool = False
    finished: bool = False  # the finish reason is out
    has_usage: bool = False  # so is the event that only tells the usage
    done: bool = False  # so is the last event
    # As the last event with text told, where events do: those of tokens without text come again.
    text_tokens: int | None = None
    text_ids: list[int] = field(default_factory=list)
    cached_tokens: int | None = None  # of the prompt, as first told
    token_ids: list[int] | None = None  # in order, where the replica told them
    scored: int = 0  # tokens whose log-probabilities are out, those of an echoed prompt among them
    scores: dict[str, list[Any]] = field(default_factory=dict)  # where each event has all so far

    def add(self, channel: Channel, text: str) -> None:
        self.texts[channel] = self.texts.get(channel, "") + text

    @property
    def is_empty(self) -> bool:
        """Nothing of the answer itself is out."""
        return not any(self.texts.values()) and not self.finished

    def text(self, *channels: Channel) -> str:
        return "".join(self.texts.get(channel, "") for channel in channels)


@dataclass(slots=True)
class Owed:
    """What the continuation says again before it says anything new, by channel."""

    texts: dict[Channel, str] = field(default_factory=dict)

    def new_part(self, channel: Channel, text: str) -> str:
        """What of the text the client does not have yet. Raises DivergedError."""
        owed = self.texts.get(channel, "")
        if not owed:
            return text
        length = min(len(owed), len(text))
        if owed[:length] != text[:length]:
            raise DivergedError("the new replica's text is not what was sent before")
        self.texts[channel] = owed[length:]
        return text[length:]

    def settle(self) -> None:
        """At the continuation's end. Raises DivergedError where less came than was sent before."""
        if any(self.texts.values()):
            raise DivergedError("the new replica's text is shorter than what was sent before")
