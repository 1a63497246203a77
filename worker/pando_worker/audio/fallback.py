"""Whether a window is decoded again at a higher temperature, as of the Whisper paper, section 4.5,
and as `_need_fallback` of transformers' generation."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Tried in turn."""

_MOST_COMPRESSION = 1.35
_LEAST_LOGPROB = -1.0
_MOST_NO_SPEECH = 0.6


class DecodingVerdict(Enum):
    GOOD = "good"
    AGAIN = "again"  # at a higher temperature
    SILENT = "silent"  # nothing is said


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one window's tokens.

    Attributes:
        compression: how often the tokens' bytes repeat themselves: their size by that compressed
        logprob: the mean of the tokens', the end token among them
        no_speech: the probability that nothing is said
    """

    compression: float
    logprob: float
    no_speech: float

    @property
    def verdict(self) -> DecodingVerdict:
        if self.logprob < _LEAST_LOGPROB and self.no_speech > _MOST_NO_SPEECH:
            return DecodingVerdict.SILENT
        if self.logprob < _LEAST_LOGPROB or self.compression > _MOST_COMPRESSION:
            return DecodingVerdict.AGAIN
        return DecodingVerdict.GOOD


def compression_of(tokens: Sequence[int], vocab_size: int) -> float:
    """
    Args:
        tokens: of a window, with the end token
    """
    if not tokens:
        return 0.0
    width = int(math.log2(vocab_size) / 8) + 1
    data = b"".join(token.to_bytes(width, "little") for token in tokens)
    return len(data) / len(zlib.compress(data))
