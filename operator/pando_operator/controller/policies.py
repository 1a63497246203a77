"""A pool's `spec.scaling` as the policy that `decide` takes."""

from pando_operator.resource import scaling as spec
from pando_operator.scaling import (
    Budget,
    Panic,
    PolicyType,
    RatePolicy,
    ScalingPolicy,
    ScalingRules,
    Schedule,
    SelectPolicy,
    Target,
)


def policy_of(fields: spec.PolicyFields) -> ScalingPolicy:
    """Of a pool that was accepted: `maxReplicas` is there unless the mode is Manual, for which
    there is no policy. Raises ValueError else."""
    if fields.max_replicas is None:
        raise ValueError("a policy needs maxReplicas")
    return ScalingPolicy(
        min_replicas=fields.min_replicas,
        max_replicas=fields.max_replicas,
        target=Target(
            pressure=fields.target.pressure,
            queue_wait_s=fields.target.queue_wait_seconds,
            hot_evictions_per_s=fields.target.hot_evictions_per_second,
        ),
        tolerance=fields.tolerance,
        window_s=fields.window_seconds,
        scale_up=_rules(fields.behavior.scale_up),
        scale_down=_rules(fields.behavior.scale_down),
        panic=_panic(fields.panic),
        idle_s=fields.idle_seconds,
        schedules=tuple(map(_schedule, fields.schedules)),
        budget=_budget(fields.budget),
    )


def _panic(panic: spec.Panic | None) -> Panic | None:
    if panic is None:
        return None
    return Panic(window_s=panic.window_seconds, threshold=panic.threshold)


def _budget(budget: spec.Budget | None) -> Budget | None:
    if budget is None:
        return None
    return Budget(replica_hours=budget.replica_hours, period_hours=budget.period_hours)


def _rules(rules: spec.ScaleUp | spec.ScaleDown) -> ScalingRules:
    return ScalingRules(
        stabilization_window_s=rules.stabilization_window_seconds,
        select_policy=SelectPolicy(rules.select_policy.value),
        policies=tuple(
            RatePolicy(PolicyType(one.type.value), one.value, one.period_seconds)
            for one in rules.policies
        ),
    )


def _schedule(schedule: spec.Schedule) -> Schedule:
    return Schedule(
        cron=schedule.cron,
        duration_s=schedule.duration_seconds,
        time_zone=schedule.time_zone,
        min_replicas=schedule.min_replicas,
        max_replicas=schedule.max_replicas,
    )
