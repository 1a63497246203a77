"""The retry budget, compared with a list of all events."""

from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.current import Current
from pando_router.core.retry_budget import MIN_PER_S, WINDOW_S, RetryBudget


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 200), st.integers(0, 13)), max_size=20),
    st.sampled_from([0.0, 0.2, 1.0]),
)
def test_retries_of_any_window_are_within_the_share_and_the_minimum(
    steps: list[tuple[int, int, int]], share: float
) -> None:
    now = 100.0
    budget = RetryBudget(Current(share), lambda: now)
    requests: list[float] = []
    retries: list[float] = []
    for come, wanted, pause_s in steps:
        for _ in range(come):
            requests.append(now)
            budget.request()
        for _ in range(wanted):
            came = sum(at > now - WINDOW_S for at in requests)
            made = sum(at > now - WINDOW_S for at in retries)
            allowed = made + 1 <= share * came + MIN_PER_S * WINDOW_S
            assert budget.allows() is allowed
            if allowed:
                budget.retry()
                retries.append(now)
        now += pause_s


def spend(budget: RetryBudget) -> int:
    """Retries until the budget is spent."""
    made = 0
    while budget.allows():
        budget.retry()
        made += 1
    return made


def test_slots_between_whole_seconds_and_after_long_silence_are_right() -> None:
    now = 0.9
    budget = RetryBudget(Current(0.5), lambda: now)
    for _ in range(1000):
        budget.request()
    now = 10.8  # another slot, the last moment in the window
    assert spend(budget) == MIN_PER_S * WINDOW_S
    now = 1e6
    assert spend(budget) == MIN_PER_S * WINDOW_S
