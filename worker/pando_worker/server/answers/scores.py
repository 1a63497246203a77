"""What classifiers make of logits, and the JSON of scores, ranks and labels."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from pando_worker.models.kinds.classifier import Activation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float32 = NDArray[np.float32]
    Float64 = NDArray[np.float64]


class _TokensUsed(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class Score(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "score"
    index: int
    score: float


class ScoredDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    index: int
    document: dict[str, str] | None = None
    relevance_score: float


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    label: str
    probs: list[float]
    num_classes: int


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Scores, or classifications, in the order of the request."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: Sequence[Score] | Sequence[Classification]
    usage: _TokensUsed


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """Documents, the best first."""

    id: str
    model: str
    usage: _TokensUsed
    results: Sequence[ScoredDocument]


def used(tokens: int) -> _TokensUsed:
    return _TokensUsed(tokens, tokens)


def json_answer(answer: Listed | Ranked, cached_tokens: int) -> Response:
    headers = {
        "x-pando-prompt-tokens": str(answer.usage.prompt_tokens),
        "x-pando-cached-tokens": str(cached_tokens),
    }
    return Response(msgspec.json.encode(answer), media_type="application/json", headers=headers)


def numbers(vector: bytes) -> list[float]:
    """Of `Embedded.vector`."""
    # Imported here: it takes a tenth of a second, and most workers score nothing.
    import numpy as np

    found: list[float] = np.frombuffer(vector, dtype="<f4").tolist()
    return found


def unit(vector: "Float32") -> "Float64":
    """A vector at length 1, whose products with others are cosines; 0 stays 0."""
    import numpy as np

    wide = vector.astype(np.float64)
    length = float(np.linalg.norm(wide))
    return wide / length if length else wide


def activated(logits: list[float], activation: Activation) -> list[float]:
    if activation == "sigmoid":
        return [
            1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x)) for x in logits
        ]
    if activation == "softmax":
        highest = max(logits)
        powers = [math.exp(x - highest) for x in logits]
        whole = sum(powers)
        return [power / whole for power in powers]
    return logits
