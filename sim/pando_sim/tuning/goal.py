"""`Goal`: what a pool is tuned for."""

from dataclasses import dataclass

ALLOWED = 0.01
"""The share of requests that may miss a time which is asked for at the 99th percentile."""

WEEK_HOURS = 168.0

HOPELESS = 0.1
"""With a budget: where more requests than this share miss, a candidate is of no interest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """99 % of the requests shall have a first token within `ttft_s`, and 99 % a mean time between
    tokens within `gap_s`; a request that was not answered has neither. With `as_today` no more
    requests shall miss a time than with today's manifest instead."""

    ttft_s: float
    gap_s: float
    budget: float | None = None  # GPU-hours a week; the fewest misses for it, not the least hours
    as_today: bool = False  # not with a budget
