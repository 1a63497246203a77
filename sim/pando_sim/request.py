"""The requests of a trace, in the order in which they arrive."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the settings name policies of requests, before any request is read
    import numpy as np
    from numpy.typing import NDArray

TOKEN_BYTES = 4
"""Of a prompt, unless its trace says otherwise."""


class Prompt(Protocol):
    """A prompt's tokens and the keys of its chunks; equal prefixes have equal ones.

    They are computed when needed: a prompt of 100,000 tokens is 400 kB.
    """

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_bytes(self) -> int:
        """The size of its canonical bytes."""
        ...

    def tokens(self) -> "NDArray[np.int32]":
        """Shape [num_tokens], none negative."""
        ...

    def keys(self) -> bytes:
        """Packed chunk keys, root first, as `pando_fleet.chunk_keys` computes them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a trace.

    It arrives at `at_s`, or, if it waits for an answer (`after`), `pause_s` after that answer
    ended. One that is sent again keeps the time at which it was sent first.
    """

    number: int  # its place in the trace, from 0
    at_s: float  # since the trace's start
    prompt: Prompt
    output_tokens: int  # to produce, at least 1
    session: str = ""  # its conversation; empty if unknown
    adapter: str = ""  # name of the LoRA adapter that it needs; empty: the model itself
    after: int | None = None  # the number of an earlier request that it waits for
    pause_s: float = 0.0
    turn: int | None = None  # in a session: its place in its conversation, from 0
    repeated_tokens: int = 0  # in a session: an earlier prompt began with them
