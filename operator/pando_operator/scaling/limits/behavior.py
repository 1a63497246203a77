"""HorizontalPodAutoscaler v2's `behavior`: stabilization windows and rate policies.

This half decides; `Behavior` in `resource/policy.py` is the spec, with the windows' defaults.
Stabilization takes the smallest change recommended within the direction's window: a pool grows to
the lowest and shrinks to the highest recommendation of that time. A rate policy limits the size
relative to the size at the start of its period: the current size without the changes since then.
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior
"""

from math import ceil, floor

from pando_operator.resource.policy import (
    Behavior,
    PolicyType,
    RatePolicy,
    ScalingRules,
    SelectPolicy,
)
from pando_operator.scaling.history.history import History, Recommendation, ScaleEvent


def stabilized(history: History, current: int, behavior: Behavior, now_s: float) -> int:
    """The size after both windows; `history` already has the newest recommendation."""
    lows = _within(history.lows, behavior.scale_up.stabilization_window_seconds, now_s)
    highs = _within(history.highs, behavior.scale_down.stabilization_window_seconds, now_s)
    return min(max(current, min(lows, default=current)), max(highs, default=current))


def _within(
    recommendations: tuple[Recommendation, ...], window_s: float, now_s: float
) -> list[int]:
    """The sizes recommended in the window, which always includes the newest one."""
    older, newest = recommendations[:-1], recommendations[-1:]
    inside = [each for each in older if each.at_s > now_s - window_s]
    return [each.replicas for each in (*inside, *newest)]


def upper_limit(
    rules: ScalingRules, current: int, events: tuple[ScaleEvent, ...], now_s: float
) -> int:
    """The largest size that `scaleUp` allows now, at least the current one."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    sizes = []
    for policy in rules.policies:
        start = _size_at_start(policy, current, events, now_s)
        pods = policy.type is PolicyType.PODS
        # Rounded up, so that a small percentage lets even a small pool grow.
        sizes.append(start + policy.value if pods else ceil(start * (100 + policy.value) / 100))
    least = rules.select_policy is SelectPolicy.MIN
    return max(current, min(sizes) if least else max(sizes))


def lower_limit(
    rules: ScalingRules, current: int, events: tuple[ScaleEvent, ...], now_s: float
) -> int:
    """The smallest size that `scaleDown` allows now, at most the current one."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    sizes = []
    for policy in rules.policies:
        start = _size_at_start(policy, current, events, now_s)
        pods = policy.type is PolicyType.PODS
        sizes.append(start - policy.value if pods else floor(start * (100 - policy.value) / 100))
    least = rules.select_policy is SelectPolicy.MIN
    return max(0, min(current, max(sizes) if least else min(sizes)))


def in_words(rules: ScalingRules) -> str:
    """Such as "+100 % or 4 in 15 s", without a sign."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return "no change"
    joined = " and " if rules.select_policy is SelectPolicy.MIN else " or "
    units = {PolicyType.PERCENT: " %", PolicyType.PODS: ""}
    return joined.join(
        f"{each.value}{units[each.type]} in {each.period_seconds} s" for each in rules.policies
    )


def _size_at_start(
    policy: RatePolicy, current: int, events: tuple[ScaleEvent, ...], now_s: float
) -> int:
    since_s = now_s - policy.period_seconds
    return current - sum(event.change for event in events if event.at_s > since_s)
