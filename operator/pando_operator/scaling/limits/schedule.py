"""Bounds that apply at certain times: cron lines with a time zone and a duration."""

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim

from pando_operator.resource.policy import ScalingPolicy, Schedule


def bounds_at(policy: ScalingPolicy, now_s: float) -> tuple[int, int, str]:
    """The fewest and most replicas now, and the schedules behind them, in words.

    Of several active schedules the highest bound wins. If the fewest exceed the most, the most
    win.
    """
    holding = [each for each in policy.schedules if holds_at(each, now_s)]
    fewest = _highest((each.min_replicas for each in holding), policy.min_replicas)
    most = _highest((each.max_replicas for each in holding), policy.most_replicas)
    words = ", ".join(f"{each.cron!r} {each.time_zone}" for each in holding)
    return min(fewest, most), most, words


def holds_at(schedule: Schedule, now_s: float) -> bool:
    """Whether the schedule began less than `durationSeconds` ago."""
    earlier = datetime.fromtimestamp(
        now_s - schedule.duration_seconds, ZoneInfo(schedule.time_zone)
    )
    begins: datetime | None = next(CronSim(schedule.cron, earlier), None)
    return begins is not None and begins.timestamp() <= now_s


def _highest(given: Iterable[int | None], otherwise: int) -> int:
    return max((bound for bound in given if bound is not None), default=otherwise)
