"""Fits a cost model to observations, and reports the remaining errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pando_sim.cost.calibration.errors import UndeterminedError
from pando_sim.cost.calibration.observations import UNKNOWNS, Observation
from pando_sim.cost.least_squares import Floats, fit
from pando_sim.cost.schema import Quality, RequestCost, StepCost

# Candidates for free tokens, besides none: from 8 to 8192, in steps of the square root of two.
_FREE_TOKENS = [8.0 * 2 ** (half / 2) for half in range(21)]
# A further coefficient must reduce the squared error by this share.
_WORTH = 0.1


@dataclass(frozen=True, slots=True)
class Fitted:
    step: StepCost
    request: RequestCost
    told_s: Floats  # [observations], as the model predicts them
    quality: Quality


def fit_model(observations: Sequence[Observation]) -> Fitted:
    """Minimizes the squared relative errors. Raises UndeterminedError."""
    observed = np.array([one.seconds for one in observations])
    best = _solve(observations, observed, 0.0)
    bound = (1 - _WORTH) * best.error
    for free_tokens in _FREE_TOKENS:
        solution = _solve(observations, observed, free_tokens)
        if solution.error < bound:
            best, bound = solution, solution.error
    found = {name: float(f"{x:.4g}") for name, x in zip(UNKNOWNS, best.unknowns, strict=True)}
    if found["step_s"] == 0:
        raise UndeterminedError(
            "the measurements do not determine the time of a step: there are too few, or too noisy"
        )
    off = np.abs(best.told_s / observed - 1)
    return Fitted(
        step=StepCost(
            step_s=found["step_s"],
            token_s=found["token_s"],
            free_tokens=float(round(best.free_tokens)),
            prefill_step_s=found["prefill_step_s"],
            prefill_context_s=found["prefill_context_s"],
            decode_row_s=found["decode_row_s"],
            decode_context_s=found["decode_context_s"],
        ),
        request=RequestCost(request_s=found["request_s"], prompt_token_s=found["prompt_token_s"]),
        told_s=best.told_s,
        quality=Quality(
            observations=len(observations),
            median_error=round(float(np.median(off)), 4),
            largest_error=round(float(off.max()), 4),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Solution:
    free_tokens: float
    unknowns: Floats
    told_s: Floats
    error: float  # sum of squares


def _solve(observations: Sequence[Observation], observed: Floats, free_tokens: float) -> _Solution:
    features = np.array([one.features(free_tokens) for one in observations])
    unknowns = fit(features, observed)
    predicted = features @ unknowns
    return _Solution(
        free_tokens, unknowns, predicted, float(np.sum((predicted / observed - 1) ** 2))
    )
