"""Requests as arrays: a million take 80 MB, and percentiles need no loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pando_sim.records import Outcome, Served

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One entry per request, in the order of the run's records. Times in seconds; nan: none."""

    arrival: Floats
    placed: Floats
    first_token: Floats
    end: Floats
    gap: Floats  # mean time between two tokens; nan for a single one
    longest_gap: Floats  # nan for a single token
    prompt: Ints  # tokens
    matched: Ints
    cached: Ints
    output: Ints
    turn: Ints  # -1: the request is of no session
    repeated: Ints
    replica: Ints  # index into `replicas`; -1 if there was none
    replicas: tuple[str, ...]  # by name
    finished: Bools
    refused: Bools

    @property
    def ttft(self) -> Floats:
        return self.first_token - self.arrival

    @property
    def computed(self) -> Ints:
        """Prompt tokens that were not cached; 0 for a request without a first token."""
        return np.where(np.isnan(self.first_token), 0, self.prompt - self.cached)


def columns(served: Sequence[Served]) -> Columns:
    def floats(value: Callable[[Served], float]) -> Floats:
        return np.fromiter(map(value, served), np.float64, len(served))

    def ints(value: Callable[[Served], int]) -> Ints:
        return np.fromiter(map(value, served), np.int64, len(served))

    replicas = tuple(sorted({one.replica for one in served} - {""}))
    index = {name: number for number, name in enumerate(replicas)} | {"": -1}
    output = ints(lambda one: one.output_tokens)
    several = output > 1
    return Columns(
        arrival=floats(lambda one: one.arrival_s),
        placed=floats(lambda one: one.placed_s),
        first_token=floats(lambda one: one.first_token_s),
        end=floats(lambda one: one.end_s),
        gap=np.where(several, floats(lambda one: one.token_gap_s), np.nan),
        longest_gap=np.where(several, floats(lambda one: one.longest_gap_s), np.nan),
        prompt=ints(lambda one: one.prompt_tokens),
        matched=ints(lambda one: one.matched_tokens),
        cached=ints(lambda one: one.cached_tokens),
        output=output,
        turn=ints(lambda one: -1 if one.turn is None else one.turn),
        repeated=ints(lambda one: one.repeated_tokens),
        replica=ints(lambda one: index[one.replica]),
        replicas=replicas,
        finished=np.fromiter(
            (one.outcome is Outcome.FINISHED for one in served), np.bool_, len(served)
        ),
        refused=np.fromiter(
            (one.outcome is Outcome.REFUSED for one in served), np.bool_, len(served)
        ),
    )
