"""Reduces a run to what reports show: about 40 kB, whatever the trace's length."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from pando_sim.records import Event, Run, ScalingStep
from pando_sim.report.columns import columns
from pando_sim.report.series import Series, series
from pando_sim.report.statistics import Statistics, statistics


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    scaling: str  # "none" for a fixed size
    session_rule: str = ""  # empty: none was chosen
    cost_model: str
    settings: Mapping[str, object]
    statistics: Statistics
    series: Series
    steps: list[ScalingStep]
    events: list[Event]
    checks: Mapping[str, int]  # invariant: how often it was checked, successfully


def digest(run: Run, *, slow_ttft_s: float, slow_gap_s: float, gpus_per_replica: int) -> Digest:
    requests = columns(run.served)
    return Digest(
        policy=run.policy,
        scaling=run.scaling,
        session_rule=run.session_rule,
        cost_model=run.cost_model,
        settings=run.settings,
        statistics=statistics(
            requests,
            run.samples,
            retried=sum(one.tries > 1 for one in run.served),
            slow_ttft_s=slow_ttft_s,
            slow_gap_s=slow_gap_s,
            gpus_per_replica=gpus_per_replica,
            wall_s=run.wall_s,
            sessions=run.sessions,
        ),
        series=series(requests, run.samples, gpus_per_replica),
        steps=list(run.steps),
        events=list(run.events),
        checks=dict(run.checks),
    )


def names(digests: list[Digest]) -> list[str]:
    """A distinguishing name per run: the policy, the rule for sessions, the scaling, or several."""
    parts = [
        [one.policy for one in digests],
        [one.session_rule for one in digests],
        [one.scaling for one in digests],
    ]
    telling = [part for part in parts if len(set(part)) > 1] or parts[:1]
    return [" · ".join(words) for words in zip(*telling, strict=True)]


def shared_events(digests: Sequence[Digest]) -> list[Event]:
    """The faults, which all runs have at the same times, with each run's outcome: in some runs the
    replica that should die may not exist."""
    found = []
    for alike in zip_longest(*(one.events for one in digests)):
        there = [event for event in alike if event is not None]  # a run may end before
        what = "; ".join(dict.fromkeys(event.what for event in there))
        found.append(Event(at_s=there[0].at_s, what=what))
    return found
