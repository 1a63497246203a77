"""Pools a prompt's hidden states into one vector, over the chunks in which it runs.

Each chunk yields the sum over some of its tokens, or each number's largest. The runner computes
these parts (`PooledRows`); here is which tokens they are of, and what the parts make together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pando_worker.batch import Float32, PooledRows
from pando_worker.messages import Pooling

_WEIGHED = frozenset((Pooling.MEAN, Pooling.SQRT, Pooling.WEIGHTED))


def pooled_tokens(pooling: Pooling, start: int, end: int, *, is_last: bool) -> range:
    """Of a prompt's tokens from `start` to before `end`, those that are pooled.

    Args:
        is_last: whether the prompt ends there
    """
    if pooling in _WEIGHED or pooling is Pooling.MAX:
        return range(start, end)
    if pooling is Pooling.CLS:
        return range(start, 1)
    return range(end - 1, end) if is_last else range(0)


@dataclass(frozen=True, slots=True)
class Pooled:
    """What of a row is pooled.

    Attributes:
        row: its index in the batch
        shift: from a token's place in the prompt to that in the batch
        tokens: of the prompt, those that are pooled
        prompt_len: tokens of the whole prompt
    """

    row: int
    shift: int
    pooling: Pooling
    tokens: range
    prompt_len: int

    @property
    def weights(self) -> Float32:
        """What each of its tokens counts in the sum over all chunks."""
        count = self.prompt_len
        match self.pooling:
            case Pooling.WEIGHTED:
                places = np.arange(self.tokens.start + 1, self.tokens.stop + 1, dtype=np.float32)
                return places / np.float32(count * (count + 1) / 2)
            case Pooling.MEAN:
                weight = 1 / count
            case Pooling.SQRT:
                weight = 1 / math.sqrt(count)
            case _:
                weight = 1.0
        return np.full(len(self.tokens), weight, dtype=np.float32)


def pooled_rows(found: Sequence[Pooled]) -> PooledRows | None:
    if not found:
        return None
    weights = None
    if any(one.pooling in _WEIGHED for one in found):
        weights = np.concatenate([one.weights for one in found])
    return PooledRows(
        rows=np.array([one.row for one in found], dtype=np.int64),
        first=np.array([one.shift + one.tokens.start for one in found], dtype=np.int64),
        last=np.array([one.shift + one.tokens.stop for one in found], dtype=np.int64),
        is_max=np.array([one.pooling is Pooling.MAX for one in found]),
        weights=weights,
    )


def joined(pooling: Pooling, parts: Float32 | None, part: Float32 | None) -> Float32 | None:
    """The parts so far, [hidden_size], with the next one; None for no tokens."""
    if parts is None or part is None:
        return part if parts is None else parts
    return np.maximum(parts, part) if pooling is Pooling.MAX else parts + part


def normalized(vector: Float32) -> Float32:
    """The vector with length 1; not finite if it is zero, or not finite itself."""
    length = np.linalg.norm(vector.astype(np.float64))  # squares may exceed float32
    if length == 0:
        return np.full_like(vector, np.nan)
    return (vector / length).astype(np.float32)
