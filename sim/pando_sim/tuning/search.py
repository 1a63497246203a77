"""`Search`: which candidates to try next, by optuna's TPE for several goals.

It asks in generations of `GENERATION` candidates, and learns from a generation when all of it has
run. So the same seed gives the same candidates, however many processes run them.
"""

import math
import warnings
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import Trial, TrialState

from pando_sim.tuning.knobs import Knob
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Space, Values

GENERATION = 6
FIRST_AT_RANDOM = 12  # trials before TPE's model is used
LEAST_MISSED = 0.001  # fewer misses are as good as this many
LEAST_HOURS = 1e-6
LEAST_FOR_IMPORTANCE = 20  # finished trials
_ON = " is on"  # of a knob's second parameter


class Search:
    def __init__(self, space: Space, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        with warnings.catch_warnings():  # both options are called experimental
            warnings.simplefilter("ignore", ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed & 2**32 - 1,
                multivariate=True,
                constant_liar=True,
                n_startup_trials=FIRST_AT_RANDOM,
            )
        self._study = optuna.create_study(directions=("minimize", "minimize"), sampler=sampler)
        for values in (space.today, space.defaults, *space.tries()):
            self._study.enqueue_trial(self._parameters(values), skip_if_exists=True)

    def ask(self) -> tuple[Trial, Values]:
        trial = self._study.ask(self._distributions())
        return trial, {knob.path: _value(knob, trial.params) for knob in self._space.knobs}

    def tell(self, trial: Trial, outcome: Score | None) -> None:
        """None: the operator refuses this candidate."""
        if outcome is None:
            self._study.tell(trial, state=TrialState.FAIL)
            return
        missed = math.log(outcome.missed + LEAST_MISSED)
        self._study.tell(trial, (math.log(max(outcome.gpu_hours, LEAST_HOURS)), missed))

    def importances(self) -> list[dict[str, float]]:
        """For GPU-hours and for misses, the share of each knob in what made a candidate good, by
        path; empty if there are too few trials to say."""
        finished = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(finished) < LEAST_FOR_IMPORTANCE:
            return []
        return [self._importance(goal) for goal in (0, 1)]

    def _importance(self, goal: int) -> dict[str, float]:
        with warnings.catch_warnings():  # it is called experimental, and says that low is good
            warnings.simplefilter("ignore")
            found = get_param_importances(
                self._study,
                evaluator=PedAnovaImportanceEvaluator(),
                target=lambda trial: trial.values[goal],
            )
        by_path = dict.fromkeys((knob.path for knob in self._space.knobs), 0.0)
        for name, share in found.items():
            by_path[name.removesuffix(_ON)] += share
        return by_path

    def _distributions(self) -> dict[str, BaseDistribution]:
        found: dict[str, BaseDistribution] = {}
        for knob in self._space.knobs:
            if knob.choices:
                found[knob.path] = CategoricalDistribution(knob.choices)
            elif knob.is_whole:
                low, high = round(knob.low), round(knob.high)
                found[knob.path] = IntDistribution(low, high, log=knob.is_log and low > 0)
            else:
                found[knob.path] = FloatDistribution(
                    knob.low, knob.high, log=knob.is_log and knob.low > 0
                )
            if knob.may_be_off:
                found[knob.path + _ON] = CategoricalDistribution((False, True))
        return found

    def _parameters(self, values: Values) -> dict[str, Any]:
        """Optuna's names of these values; what is off has the middle of its range."""
        found: dict[str, Any] = {}
        for knob in self._space.knobs:
            value = values[knob.path]
            if knob.may_be_off:
                found[knob.path + _ON] = value is not None
            if value is None:
                value = (knob.low + knob.high) / 2
            found[knob.path] = value if knob.choices or not knob.is_whole else round(float(value))
        return found


def _value(knob: Knob, parameters: dict[str, Any]) -> Any:
    if knob.may_be_off and not parameters[knob.path + _ON]:
        return None
    value = parameters[knob.path]
    return value if knob.choices else float(knob.rounded(value))
