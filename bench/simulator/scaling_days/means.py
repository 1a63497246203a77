"""The mean of each contender's days."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import msgspec

from bench.simulator.scaling_days.runs import Key, Result


def means(results: Sequence[Result]) -> list[Result]:
    """One result per contender, load and start time, labelled as its first day; shares and times
    are means of the days', counts are rounded."""
    days: dict[Key, list[Result]] = defaultdict(list)
    for one in results:
        days[(0, *one.key[1:])].append(one)
    return [_mean(same) for same in days.values()]


def _mean(days: Sequence[Result]) -> Result:
    kinds = {field.name: field.type for field in msgspec.structs.fields(Result)}
    same = ("day", "hours", "load", "start_s", "scaler", "knob")
    values = {name: fmean(getattr(day, name) for day in days) for name in kinds.keys() - same}
    whole = {name: round(value) for name, value in values.items() if kinds[name] is int}
    return msgspec.structs.replace(days[0], **values | whole)
