"""Proposals from signals that show that a pool is too small, but not by how much."""

import math
from collections.abc import Sequence

from pando_operator.scaling.decision import Proposal
from pando_operator.scaling.history.demand import average, within
from pando_operator.scaling.history.history import Sample
from pando_operator.scaling.proposals.sizing import View

QUEUE_WAIT = "queueWait"
HOT_EVICTIONS = "hotEvictions"

MOST_GROWTH = 2.0
"""Limit on the growth by one proposal: a wait grows without end even if little is missing."""

WHOLE = 0.9
"""Part of the window that samples must cover to show all of it."""

HOT_MEMORY_S = 3600.0
"""For so long a pool does not return to a size at which hot evictions were too many."""


def by_queue_wait(view: View) -> Proposal | None:
    """More replicas while requests wait longer than the target and the queue does not shrink."""
    target = view.policy.target.queue_wait_seconds
    inside = within(view.history.samples, view.policy.window_seconds)
    if target is None or not inside:
        return None
    has_stood = _stood(inside, view.policy.window_seconds)

    def wait_s(sample: Sample) -> float:
        return max(sample.queue_wait_s, sample.place_wait_s if has_stood else 0.0)

    mean, last = average(inside, wait_s), wait_s(inside[-1])
    if min(mean, last) <= target * (1 + view.policy.tolerance):
        return None
    words = f"requests wait {last:.1f} s, target {target:g} s"
    if view.snapshot.coming:
        wanted, why = view.current, f"{view.snapshot.coming} replicas are coming"
    elif last < mean:
        wanted, why = view.current, "the queue is getting shorter"
    else:
        factor = min(MOST_GROWTH, mean / target)
        wanted, why = math.ceil(view.current * factor), f"{factor:.1f} times {view.current}"
    return Proposal(QUEUE_WAIT, wanted, f"{words}, {why}: wants {wanted}")


def _stood(samples: Sequence[Sample], window_s: float) -> bool:
    """Whether requests waited in replicas during the whole window. In a pool with free places one
    that has just come waits for the next step only, though the running ones end much later."""
    passed_s = samples[-1].at_s - samples[0].at_s
    return passed_s >= WHOLE * window_s and all(sample.place_wait_s > 0 for sample in samples)


def by_hot_evictions(view: View) -> Proposal | None:
    """One more replica if caches evict what is soon needed again; then it waits for the effect."""
    target = view.policy.target.hot_evictions_per_second
    if target is None:
        return None
    added = [event for event in view.history.events if event.by == HOT_EVICTIONS]
    recent = [each for each in added if view.now_s - each.at_s < HOT_MEMORY_S and each.change > 0]
    floor = max((each.after for each in recent), default=0)
    inside = within(view.history.samples, view.policy.window_seconds)
    passed_s = inside[-1].at_s - inside[0].at_s if inside else 0.0
    if not passed_s or not view.beats:
        return None
    evicted = inside[-1].hot_evicted_tokens - inside[0].hot_evicted_tokens
    rate = evicted / passed_s / len(view.beats)
    words = f"{rate:.1f} hot tokens/s evicted on each replica, target {target:g}"
    if rate <= target * (1 + view.policy.tolerance):
        if not floor:
            return None
        ago = f"{(view.now_s - recent[-1].at_s) / 60:.0f} min"
        return Proposal(HOT_EVICTIONS, floor, f"{words}, too many {ago} ago on {floor - 1}")
    last_s = max((event.at_s for event in view.history.events), default=None)
    settled = last_s is None or view.now_s - last_s >= view.policy.window_seconds
    if view.snapshot.coming or not settled or passed_s < view.policy.window_seconds / 2:
        wanted = max(floor, view.current)
        return Proposal(HOT_EVICTIONS, wanted, f"{words}: waits for the effect of the last change")
    wanted = max(floor, view.current + 1)
    return Proposal(HOT_EVICTIONS, wanted, f"{words}: wants {wanted}")
