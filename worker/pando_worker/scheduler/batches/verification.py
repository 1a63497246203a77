"""Outputs that are verified: the tokens behind which the model chooses, and what it may choose."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pando_worker.batch import NO_TIMESTAMPS, ChosenTokens
from pando_worker.grammar.speech import SpeechGrammar
from pando_worker.scheduler.req import Req


@dataclass(frozen=True, slots=True)
class Verification:
    """A request's part in a step.

    Attributes:
        positions: of its tokens behind which the model chooses
        first: of these, as an index in the batch's tokens
    """

    req: Req
    positions: range
    first: int


def chosen_tokens(parts: Sequence[Verification]) -> ChosenTokens | None:
    """None if there are no parts."""
    if not parts:
        return None
    afters = [np.arange(part.first, part.first + len(part.positions)) for part in parts]
    firsts = [np.full(len(part.positions), _first_timestamp(part.req)) for part in parts]
    return ChosenTokens(
        after=np.concatenate(afters).astype(np.int64),
        mask=np.concatenate([_masks(part) for part in parts]),
        first_timestamps=np.concatenate(firsts).astype(np.int64),
    )


def _first_timestamp(req: Req) -> int:
    assert req.rules is not None
    first = req.rules.first_timestamp
    return NO_TIMESTAMPS if first is None else first


def _masks(part: Verification) -> np.ndarray:
    """[positions, words]"""
    req, grammar = part.req, part.req.grammar
    assert isinstance(grammar, SpeechGrammar) and req.verified_from is not None
    output = req.tokens(part.positions.stop)[req.verified_from :].tolist()
    return grammar.masks(output, len(output) - len(part.positions) + 1)
