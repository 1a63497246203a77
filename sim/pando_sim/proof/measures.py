"""`Measures`: the numbers by which a period of real traffic and its replay are compared."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SKIPPED_SHARE = 0.1
"""Share of a period that is played but not compared: a replay begins with empty caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """A number is None if there was nothing to compute it from. Times are in seconds."""

    requests: int
    span_s: float  # from the first arrival to the last one
    skip_s: float  # at its start, of which nothing is in the numbers below
    replicas: float | None  # mean over time of those that cost money
    hit_rate: float | None  # cached share of the prompt tokens
    refused: float | None  # share of the requests
    ttft_p50: float | None  # of streamed answers
    ttft_p99: float | None
    gap_p50: float | None  # a streamed answer's mean time between tokens
    gap_p99: float | None


def quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
