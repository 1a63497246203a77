"""Verdicts of health checks, compared with their definition over the whole history."""

from hypothesis import given
from hypothesis import strategies as st

from pando_router.health.verdict import Verdict


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_only_so_many_in_a_row_change_the_verdict(
    checks: list[bool], unhealthy_after: int, healthy_after: int
) -> None:
    verdict = Verdict(unhealthy_after, healthy_after)
    healthy, since = True, 0
    for number, passed in enumerate(checks, 1):
        changed = verdict.count(passed)
        needed = unhealthy_after if healthy else healthy_after
        turns = checks[max(since, number - needed) : number] == [not healthy] * needed
        assert changed is turns
        if turns:
            healthy, since = not healthy, number
        assert verdict.healthy is healthy
