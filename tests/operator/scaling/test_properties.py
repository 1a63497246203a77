"""Properties that hold for every pool, policy and history."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.records.queues import Queued
from pando_operator.resource.policy import Behavior, Budget, Panic, ScalingPolicy, Target
from pando_operator.scaling import History, Snapshot, decide
from tests.operator.scaling.pool_model import AT_ONCE, NOW, pool

_PRESSURES = st.lists(st.floats(0, 3), max_size=6)
_LOOK = st.tuples(
    st.integers(1, 60),  # s since the look before
    _PRESSURES,
    st.integers(0, 4),  # coming
    st.integers(0, 50),  # requests in routers
    st.sampled_from(("seen", "seen", "seen", "stale", "away")),
)
_POLICY = st.builds(
    ScalingPolicy,
    min_replicas=st.integers(0, 3),
    max_replicas=st.integers(3, 9),
    target=st.builds(
        Target,
        pressure=st.sampled_from((0.3, 0.7, 1.0)),
        queue_wait_seconds=st.sampled_from((None, 2.0)),
        hot_evictions_per_second=st.sampled_from((None, 10.0)),
    ),
    behavior=st.sampled_from((Behavior(), AT_ONCE)),
    panic=st.sampled_from((None, Panic())),
    idle_seconds=st.sampled_from((None, 30)),
    budget=st.sampled_from((None, Budget(replica_hours=0.1, period_hours=0.1))),
)


def _snapshot(
    pressures: list[float], coming: int, requests: int, how: str, history: History
) -> Snapshot:
    queued = Queued(requests, waited_ms=1_000, tokens=900 * requests)
    age_s = 60.0 if how == "stale" else 0.1
    snapshot = pool(
        *pressures, coming=coming, queued=queued, start_s=40.0, history=history, age_s=age_s
    )
    return replace(snapshot, signals=None) if how == "away" else snapshot


@given(policy=_POLICY, looks=st.lists(_LOOK, max_size=25))
def test_every_decision_is_within_bounds_and_missing_signals_never_shrink_a_pool(
    policy: ScalingPolicy, looks: list[tuple[int, list[float], int, int, str]]
) -> None:
    now, history = NOW, History()
    for pause_s, pressures, coming, requests, how in looks:
        now += pause_s
        decision = decide(_snapshot(pressures, coming, requests, how, history), policy, now)
        current = len(pressures) + coming
        assert decision.desired >= policy.min_replicas
        assert decision.reason
        if decision.signals_ok or not current:
            assert decision.desired <= policy.most_replicas
        else:
            assert decision.desired <= max(policy.most_replicas, current)
            # Only replicas that never became ready may be given up without their signals: those of
            # the routers say that no request waits.
            gives_up = not pressures and how != "away" and decision.desired == 0
            assert decision.desired >= current or gives_up
        if decision.desired != current:
            history = decision.history.scaled(now, current, decision.desired, decision.by)
        else:
            history = decision.history
        size = len(history.samples) + len(history.highs) + len(history.events)
        assert size <= 60 + 10 + 25, "a history is bounded by its windows"


@given(
    policy=_POLICY,
    pressures=st.lists(st.floats(0, 3), min_size=1, max_size=6),
    more=st.floats(0, 2),
    coming=st.integers(0, 3),
)
def test_more_pressure_never_wants_fewer_replicas(
    policy: ScalingPolicy, pressures: list[float], more: float, coming: int
) -> None:
    low = decide(pool(*pressures, coming=coming), policy, NOW)
    high = decide(pool(*(p + more for p in pressures), coming=coming), policy, NOW)
    assert high.desired >= low.desired
    assert high.wanted >= low.wanted


@given(pressures=st.lists(st.floats(0.01, 1.2), min_size=2, max_size=8))
def test_what_remains_after_a_shrink_is_under_the_target(pressures: list[float]) -> None:
    policy = ScalingPolicy(max_replicas=10, behavior=AT_ONCE)
    decision = decide(pool(*pressures), policy, NOW)
    if decision.desired < len(pressures):
        assert sum(pressures) <= policy.target.pressure * decision.desired + 1e-4
