"""What a trace holds: requests, in the order in which they come."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Prompt(Protocol):
    """A prompt's tokens and the keys of its chunks; equal prefixes have equal ones.

    Made from the trace when it is asked for: a prompt of 100,000 tokens is 400 kB.
    """

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_bytes(self) -> int:
        """Of its canonical bytes."""
        ...

    def tokens(self) -> NDArray[np.int32]:
        """Shape [num_tokens], none negative."""
        ...

    def keys(self) -> bytes:
        """Packed chunk keys, root first, as `pando_fleet.chunk_keys` makes them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a trace.

    It comes at `at_s`; one that waits for an answer (`after`), `pause_s` after that answer ended.
    """

    number: int  # its place in the trace, from 0
    at_s: float  # since the trace's start
    prompt: Prompt
    output_tokens: int  # that are produced, at least 1
    session: str = ""  # of a conversation; empty where the trace does not say
    after: int | None = None  # the number of the request, earlier in the trace, that it waits for
    pause_s: float = 0.0
