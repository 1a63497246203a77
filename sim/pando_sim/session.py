"""`Session`: an agent's conversation with its model, whose calls have no times of their own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pando_sim.request import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a conversation, which is sent `pause_s` after the answer to the one before."""

    prompt: Prompt
    output_tokens: int  # at least 1
    pause_s: float
    repeated_tokens: int  # of the prompt: an earlier prompt began with them


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    calls: tuple[Call, ...]  # at least one
    # For a sub-agent: the call of the main conversation whose answer starts it.
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The main conversation comes first, then those of its sub-agents, which run beside it."""

    name: str
    conversations: tuple[Conversation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Sessions that run at once: a new one begins when one ends."""

    sessions: Callable[[], Iterator[Session]]  # without end
    at_once: int
    until_s: float  # afterwards nothing is sent
