"""`SoundRule`: how many tokens a file of sound takes, from its length.

A model that hears encodes one window after the other, each padded to its whole length, into as many
positions as it has; a worker reports both in its heartbeats.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

MAX_TOKENS = 1 << 17
"""Of a file, whatever its header says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundRule:
    """
    Attributes:
        window_s: seconds of a window
        tokens: positions of the encoder in each
    """

    window_s: Annotated[float, Meta(gt=0, le=3600)]
    tokens: Annotated[int, Meta(ge=0, le=2**20)]

    def tokens_of(self, seconds: float) -> int:
        """Estimated tokens of a file."""
        return min(MAX_TOKENS, self.tokens * max(1, math.ceil(seconds / self.window_s)))
