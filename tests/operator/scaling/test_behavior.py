"""Stabilization windows and rate policies compared with a brute-force model of HPA v2."""

import math
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from pando_operator.resource.policy import (
    Behavior,
    PolicyType,
    RatePolicy,
    ScaleDown,
    ScaleUp,
    ScalingRules,
    SelectPolicy,
)
from pando_operator.scaling import History
from pando_operator.scaling.history.history import ScaleEvent
from pando_operator.scaling.limits.behavior import lower_limit, stabilized, upper_limit
from tests.operator.scaling.pool_model import NOW


@dataclass
class PlainHpa:
    """Keeps and searches all recommendations and changes, like HPA's controller."""

    up: ScalingRules
    down: ScalingRules
    recommendations: list[tuple[float, int]] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)

    def stabilize(self, now: float, current: int, wanted: int) -> int:
        lowest = highest = wanted
        for at, replicas in self.recommendations:
            if at > now - self.up.stabilization_window_seconds:
                lowest = min(lowest, replicas)
            if at > now - self.down.stabilization_window_seconds:
                highest = max(highest, replicas)
        self.recommendations.append((now, wanted))
        if current < lowest:
            return lowest
        return min(current, highest)

    def limit(self, now: float, current: int, wanted: int) -> int:
        if wanted > current:
            return min(wanted, max(current, self._limit(now, current, self.up, +1)))
        if wanted < current:
            return max(wanted, min(current, self._limit(now, current, self.down, -1)))
        return wanted

    def _limit(self, now: float, current: int, rules: ScalingRules, sign: int) -> int:
        if rules.select_policy == "Disabled":
            return current
        limits = []
        for policy in rules.policies:
            at_start = current
            for at, change in self.changes:
                if at > now - policy.period_seconds:
                    at_start -= change
            if policy.type == "Pods":
                limits.append(at_start + sign * policy.value)
            elif sign > 0:
                limits.append(math.ceil(at_start * (1 + policy.value / 100)))
            else:
                limits.append(int(at_start * (1 - policy.value / 100)))
        most_change = (rules.select_policy == "Max") == (sign > 0)
        return max(limits) if most_change else min(limits)


_FIELDS = {
    "stabilization_window_seconds": st.sampled_from((0, 15, 60, 300)),
    "select_policy": st.sampled_from(SelectPolicy),
    "policies": st.lists(
        st.builds(
            RatePolicy,
            type=st.sampled_from(PolicyType),
            value=st.sampled_from((1, 2, 4, 25, 50, 100)),
            periodSeconds=st.sampled_from((15, 60, 120)),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
}


@given(
    up=st.builds(ScaleUp, **_FIELDS),
    down=st.builds(ScaleDown, **_FIELDS),
    steps=st.lists(st.tuples(st.integers(1, 90), st.integers(0, 9)), max_size=40),
)
def test_windows_and_rates_are_those_of_hpa(
    up: ScaleUp, down: ScaleDown, steps: list[tuple[int, int]]
) -> None:
    behavior = Behavior(scale_up=up, scale_down=down)
    model, history, now, current = PlainHpa(up, down), History(), 1_000.0, 3
    for pause_s, wanted in steps:
        now += pause_s
        history = history.recommended(now, wanted)
        steady = stabilized(history, current, behavior, now)
        assert steady == model.stabilize(now, current, wanted)
        allowed = steady
        if steady > current:
            allowed = min(steady, upper_limit(up, current, history.events, now))
        elif steady < current:
            allowed = max(steady, lower_limit(down, current, history.events, now))
        assert allowed == max(0, model.limit(now, current, steady))
        if allowed != current:
            history = history.scaled(now, current, allowed, "")
            model.changes.append((now, allowed - current))
            current = allowed
        assert len(history.highs) + len(history.lows) <= 2 * 10, "bounded by different sizes"


def test_a_doubling_in_15_s_then_waits_for_the_next_15_s() -> None:
    rules = ScaleUp()
    history = History().scaled(100.0, 4, 8, "")
    assert upper_limit(rules, 8, history.events, 101.0) == 8
    assert upper_limit(rules, 8, history.events, 115.0) == 16


def test_a_percentage_is_of_the_size_at_the_periods_start() -> None:
    tenth = (RatePolicy(type=PolicyType.PERCENT, value=10, period_seconds=60),)
    grown = (ScaleEvent(NOW - 30, 200, 190),)
    assert lower_limit(ScaleDown(policies=tenth), 190, grown, NOW) == 180
    assert lower_limit(ScaleDown(policies=tenth), 190, grown, NOW + 30) == 171
    assert upper_limit(ScaleUp(policies=tenth), 190, grown, NOW) == 220
    assert upper_limit(ScaleUp(policies=tenth), 190, grown, NOW + 30) == 209
