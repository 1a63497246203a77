"""Time limits in headers: both forms mean the same, and workers understand the router's."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.http.time_limit import time_left, time_limit_s


@given(st.floats(min_value=-10, max_value=1.7e308))
def test_a_worker_reads_what_a_router_says_is_left(left_s: float) -> None:
    read_s = time_limit_s([time_left(left_s)])
    if left_s < 0.001:
        assert read_s == 0.001  # over, but a time
    elif left_s < 999_999:
        assert left_s - 0.0011 < read_s <= left_s
    else:
        assert read_s > 999_998


def test_the_fewest_of_all_count() -> None:
    seconds, milliseconds = (b"x-request-timeout", b"0.5 "), (b"x-request-timeout-ms", b"400")
    assert time_limit_s([seconds, (b"host", b"x")]) == 0.5
    assert time_limit_s([seconds, milliseconds]) == time_limit_s([milliseconds, seconds])
    assert time_limit_s([seconds, milliseconds]) == pytest.approx(0.4)
    assert time_limit_s([(b"x-request-timeouts", b"1")]) == inf
