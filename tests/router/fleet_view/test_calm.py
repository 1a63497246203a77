"""A server that alternates between up and away is accepted again less and less often."""

from pando_router.fleet_view.calm import LONGEST_CALM_S, RELAPSE_S, Calm


def test_a_server_that_comes_back_for_the_first_time_is_up_with_its_first_answer() -> None:
    calm = Calm()
    calm.failed(0.0)
    assert calm.answered(0.2)
    calm.failed(0.2 + RELAPSE_S)
    assert calm.answered(0.4 + RELAPSE_S)


def test_each_relapse_takes_twice_as_long_up_to_a_minute() -> None:
    calm, now, waits = Calm(), 0.0, []
    assert calm.answered(now)
    for _ in range(8):
        calm.failed(now)
        failed_at = now
        while not calm.answered(now):
            now += 0.5
        waits.append(now - failed_at)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_failure_restarts_the_wait() -> None:
    calm = Calm()
    assert calm.answered(0.0)
    calm.failed(1.0)
    assert not calm.answered(1.2)
    calm.failed(2.0)
    assert not calm.answered(2.5)
    assert not calm.answered(3.4)
    assert calm.answered(3.5)


def test_at_worst_it_changes_twice_a_minute() -> None:
    calm, changes, up, now = Calm(), 0, False, 0.0
    while now < 3600:
        was, up = up, calm.answered(now)
        changes += up is not was
        if up:
            calm.failed(now)
            changes, up = changes + 1, False
        now += 0.2
    assert changes <= 2 * (3600 / LONGEST_CALM_S + 6)
