"""A request's stay at a replica, followed by its router."""

from dataclasses import dataclass
from math import nan
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pando_worker.messages import Generate


class Follower(Protocol):
    """Receives a stay's events in virtual time, before the network's delay."""

    def first_byte(self, stay: "Stay") -> None: ...

    def finished(self, stay: "Stay") -> None: ...

    def refused(self, stay: "Stay", status: int) -> None: ...

    def lost(self, stay: "Stay") -> None:
        """The replica is gone, before or after the first tokens."""
        ...


@dataclass(slots=True, eq=False)
class Stay:
    command: Generate
    follower: Follower
    arrives_s: float  # at the scheduler
    prompt_bytes: int = 0  # of its text, if it has one
    cached_tokens: int = 0
    tokens: int = 0  # received so far
    first_s: float = nan
    last_s: float = nan
    longest_gap_s: float = 0.0

    @property
    def prompt_tokens(self) -> NDArray[np.int32]:
        """Those that it was sent, without output of earlier stays."""
        sent = self.command.input_ids
        tokens: NDArray[np.int32] = sent[: len(sent) - self.command.num_output]  # type: ignore[assignment]  # an array
        return tokens

    def token(self, at_s: float) -> None:
        self.tokens += 1
        if self.tokens == 1:
            self.first_s = at_s
        else:
            self.longest_gap_s = max(self.longest_gap_s, at_s - self.last_s)
        self.last_s = at_s
