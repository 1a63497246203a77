"""Proposals from KV pressure and from its growth."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from pando_operator.scaling.decision import Proposal
from pando_operator.scaling.history.demand import ASSUMED_START_S, demand_of, slope, within
from pando_operator.scaling.history.history import Sample
from pando_operator.scaling.proposals.sizing import View

PRESSURE = "pressure"
GROWTH = "growth"

FEWEST_PARTS, MOST_PARTS = 4, 6
"""Parts of each half of the period in which growth is measured. In random order, the newer six of
twelve numbers exceed the others one time in 924, the newer four of eight one time in 70. More
frequent observations must not make the test harder, so there are at most six."""

MOST_USABLE = 0.95
"""Usable share above which the reason does not mention it."""

MOST_WAITING = 0.1
"""Waiting over pinned tokens above which capacity, not arrivals, decides how many requests run."""


def by_pressure(view: View) -> Proposal | None:
    """The size at which the needed tokens are the target's share of the capacity.

    It does not depend on how many replicas are ready, so it includes those that still start.
    """
    demand = demand_of(view.history.samples, view.policy.window_seconds)
    if demand is None or not view.history.capacity_tokens:
        return None
    needed = view.needed_tokens(demand)
    replicas = max(view.replicas_for(needed), min(view.current, 1))  # only idle proposes zero
    target = view.policy.target.pressure
    ready = sum(beat.capacity_tokens for beat in view.beats)
    if not ready:
        words = f"{demand.total:.0f} tokens wait, {_room(view)}"
        return Proposal(PRESSURE, replicas, f"{words}: wants {replicas}")
    share = view.history.usable_share
    pressure = demand.total / ready / share
    if pressure > target:
        # A pool over its target must not shrink, whatever caused the queue.
        replicas = max(replicas, min(view.current, view.replicas_for(demand.total)))
    over = "over" if pressure > target * (1 + view.policy.tolerance) else "under"
    if abs(pressure / target - 1) <= view.policy.tolerance:
        over = "close to"
    usable = f", {pressure:.2f} of the {100 * share:.0f} % of room that can be filled,"
    words = f"pressure {demand.total / ready:.2f}{usable if share < MOST_USABLE else ''}"
    words += f" {over} target {target:.2f} {view.on_ready()}"
    if needed < demand.total:
        words += (
            f", of {demand.waiting:.0f} waiting tokens {max(0.0, needed - demand.pinned):.0f} count"
            f" because a replica starts in {view.snapshot.start_s or ASSUMED_START_S:.0f} s"
            f" and a token is held for {view.history.residence_s:.0f} s"
        )
    return Proposal(PRESSURE, replicas, f"{words}: wants {replicas}")


def by_growth(view: View) -> Proposal | None:
    """The size for the load at the time when a replica requested now becomes ready.

    Only lasting growth counts, since even a handful of requests shows slopes. Over one start time,
    each part of the newer half must have a higher mean than each part of the older half; the
    growth is the smaller slope of the two halves. A part is at least as long as a token stays
    pinned, because shorter parts would measure the same requests twice. Only running requests
    count. If many requests waited, more of them run because room was added, not because more
    arrive, and `by_pressure` already counts the queue.
    """
    start_s = view.snapshot.start_s
    if not start_s or not view.history.capacity_tokens:
        return None
    looked_s = max(start_s, view.policy.window_seconds)
    inside = within(view.history.samples, looked_s)
    middle_s = view.now_s - looked_s / 2
    halves = (
        [sample for sample in inside if sample.at_s <= middle_s],
        [sample for sample in inside if sample.at_s > middle_s],
    )
    parts = min(MOST_PARTS, *map(len, halves))
    if view.history.residence_s:
        parts = min(parts, int(looked_s / 2 / view.history.residence_s))
    if parts < FEWEST_PARTS or halves[0][0].at_s > view.now_s - 0.9 * looked_s:
        return None
    older, newer = (_means(half, parts) for half in halves)
    if min(newer) <= max(older):
        return None
    growth = min(slope(half, lambda sample: sample.pinned_tokens) for half in halves)
    meanwhile = demand_of(view.history.samples, looked_s)
    demand = demand_of(view.history.samples, view.policy.window_seconds)
    if growth <= 0 or meanwhile is None or demand is None:
        return None
    if meanwhile.waiting > MOST_WAITING * meanwhile.pinned:
        return None
    needed = view.needed_tokens(demand) + growth * start_s
    replicas = view.replicas_for(needed)
    pressure = needed / (view.history.usable_tokens * max(1, view.current))
    words = (
        f"pressure grows and will be {pressure:.2f} on {view.current}"
        f" when a replica asked for now is ready in {start_s:.0f} s"
    )
    return Proposal(GROWTH, replicas, f"{words}: wants {replicas}")


def _means(samples: Sequence[Sample], parts: int) -> list[float]:
    """Mean pinned tokens of each part; the parts have equally many samples."""
    cuts = [len(samples) * part // parts for part in range(parts + 1)]
    return [
        fmean(sample.pinned_tokens for sample in samples[begin:end])
        for begin, end in pairwise(cuts)
    ]


def _room(view: View) -> str:
    return f"a replica holds {view.policy.target.pressure * view.history.usable_tokens:.0f}"
