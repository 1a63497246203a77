"""What a look at a pool adds to its history."""

import math
from dataclasses import replace

from pando_operator.scaling.demand import within
from pando_operator.scaling.history import COUNTERS_KEPT, SAMPLES_KEPT, Counter, History, Sample
from pando_operator.scaling.snapshot import ReplicaLoad, RouterQueue, Signals, Snapshot

STALE_S = 5.0
"""Heartbeats that are older tell nothing: workers send two a second."""

SAMPLE_EVERY_S = 0.5
"""Looks that follow each other closer than this count as one."""

LEARNED_S = 300.0
"""Over which the time that tokens stay pinned is smoothed, and the room that is usable."""

BUSY_ENOUGH = 0.01
"""Share of the capacity that must be pinned for that time, and for the usable room, to mean
anything."""

USABLE_S = 6 * 3600.0
"""In which room that was once found usable is taken to have become e times as much."""


def fresh_loads(signals: Signals | None) -> tuple[ReplicaLoad, ...]:
    """Of the replicas whose word counts."""
    if signals is None:
        return ()
    return tuple(
        load for load in signals.loads if load.age_s <= STALE_S and load.capacity_tokens > 0
    )


def is_blind(snapshot: Snapshot) -> bool:
    """Whether nothing is known of the replicas that are ready."""
    return snapshot.signals is None or (snapshot.ready > 0 and not fresh_loads(snapshot.signals))


def problem_of(snapshot: Snapshot) -> str:
    """What is wrong with the signals, in words; empty where they are complete."""
    if snapshot.signals is None:
        return "no signals: Redis is away"
    fresh = len(fresh_loads(snapshot.signals))
    missing = snapshot.ready - fresh
    if missing <= 0:
        return "" if snapshot.ready or not snapshot.current else "no replica is ready"
    oldest = max((load.age_s for load in snapshot.signals.loads), default=0.0)
    stale = f", the oldest heard of is {oldest:.0f} s old" if oldest > STALE_S else ""
    return f"no fresh signals of {missing} of {snapshot.ready} ready replicas{stale}"


def observed(snapshot: Snapshot, window_s: float, kept_s: float, now_s: float) -> History:
    """The history with this look in it. Samples of the last `kept_s` are kept."""
    history = snapshot.history
    if not history.highs:
        # Nothing is known of before: what is there counts as wanted.
        history = history.recommended(now_s, snapshot.current)
    last_busy_s = now_s if history.last_busy_s is None else history.last_busy_s
    if snapshot.signals is None or is_blind(snapshot):
        return replace(history, last_busy_s=last_busy_s)
    loads, queue = fresh_loads(snapshot.signals), snapshot.signals.queue
    known = {counter.incarnation: counter for counter in history.counters}
    computed = hot = 0
    for load in loads:
        before = known.get(load.incarnation)
        if before is not None:
            computed += max(0, load.prompt_tokens_total - before.prompt_tokens)
            hot += max(0, load.hot_evicted_tokens_total - before.hot_evicted_tokens)
    if computed or queue.requests or any(load.running or load.waiting for load in loads):
        last_busy_s = now_s
    hot += history.samples[-1].hot_evicted_tokens if history.samples else 0
    sample = _sample(loads, queue, hot, now_s)
    samples = _kept(history.samples, sample, kept_s)
    return replace(
        history,
        samples=samples,
        counters=_counters(history, loads),
        last_busy_s=last_busy_s,
        capacity_tokens=_capacity(history, loads),
        residence_s=_residence(history, loads, sample),
        usable_share=_usable(history, samples, max(window_s, history.residence_s or 0.0)),
    )


def queue_wait_s(loads: tuple[ReplicaLoad, ...], queue: RouterQueue) -> float:
    """How long the request that waits longest has waited or, in a replica, will wait."""
    prompts = sum(load.waiting_prompt_tokens for load in loads)
    rate = sum(load.prefill_tokens_per_s for load in loads)
    return max(queue.waited_s if queue.requests else 0.0, prompts / rate if rate > 0 else 0.0)


def _sample(loads: tuple[ReplicaLoad, ...], queue: RouterQueue, hot: int, now_s: float) -> Sample:
    share = queue.requests / max(1, len(loads))
    crowded = [load for load in loads if 0 < load.running <= load.waiting + share]
    return Sample(
        at_s=now_s,
        pinned_tokens=sum(load.pinned_tokens for load in loads),
        waiting_tokens=sum(load.waiting_tokens for load in loads) + queue.tokens,
        crowded_pinned_tokens=sum(load.pinned_tokens for load in crowded),
        crowded_room_tokens=sum(load.capacity_tokens for load in crowded),
        capacity_tokens=sum(load.capacity_tokens for load in loads),
        release_tokens_per_s=sum(load.release_tokens_per_s for load in loads),
        queue_wait_s=queue_wait_s(loads, queue),
        hot_evicted_tokens=hot,
        replicas=len(loads),
    )


def _kept(samples: tuple[Sample, ...], new: Sample, window_s: float) -> tuple[Sample, ...]:
    kept = [sample for sample in samples if new.at_s - window_s <= sample.at_s < new.at_s]
    if len(kept) > 1 and kept[-1].at_s - kept[-2].at_s < SAMPLE_EVERY_S:
        kept.pop()
    kept.append(new)
    if len(kept) > SAMPLES_KEPT:
        half = len(kept) // 2
        kept = kept[:half:2] + kept[half:]
    return tuple(kept)


def _counters(history: History, loads: tuple[ReplicaLoad, ...]) -> tuple[Counter, ...]:
    heard = {load.incarnation for load in loads}
    # One that is silent for a moment goes on where it was.
    silent = [each for each in history.counters if each.incarnation not in heard]
    new = [
        Counter(load.incarnation, load.prompt_tokens_total, load.hot_evicted_tokens_total)
        for load in loads
    ]
    return tuple((silent + new)[-COUNTERS_KEPT:])


def _capacity(history: History, loads: tuple[ReplicaLoad, ...]) -> int:
    if not loads:
        return history.capacity_tokens
    return sum(load.capacity_tokens for load in loads) // len(loads)


def _residence(history: History, loads: tuple[ReplicaLoad, ...], sample: Sample) -> float | None:
    """By Little's law, the tokens in a place over the rate at which they leave it."""
    capacity = sum(load.capacity_tokens for load in loads)
    if sample.release_tokens_per_s <= 0 or sample.pinned_tokens < BUSY_ENOUGH * capacity:
        return history.residence_s
    now = sample.pinned_tokens / sample.release_tokens_per_s
    if history.residence_s is None or not history.samples:
        return now if history.residence_s is None else history.residence_s
    keep = math.exp(-_since_s(history, sample) / LEARNED_S)
    return history.residence_s * keep + now * (1 - keep)


def _usable(history: History, samples: tuple[Sample, ...], window_s: float) -> float:
    """What replicas fill of their room while requests wait.

    It is less than all where something else than room is what they lack, mostly the time to compute
    prompts. As time passes it is taken for more again: a pool tries what it can hold by and by.
    What is known changes by and by, too: requests that have just begun hold little yet.
    """
    inside, since_s = within(samples, window_s), _since_s(history, samples[-1])
    passed_s = inside[-1].at_s - inside[0].at_s
    if passed_s >= 0.9 * window_s and all(sample.is_crowded for sample in inside):
        filled = sum(sample.crowded_pinned_tokens for sample in inside)
        share = filled / sum(sample.crowded_room_tokens for sample in inside)
        share = min(1.0, max(BUSY_ENOUGH, share))
        keep = math.exp(-since_s / LEARNED_S) if history.usable_share < 1 else 0.0
        return history.usable_share * keep + share * (1 - keep)
    return min(1.0, history.usable_share * math.exp(since_s / USABLE_S))


def _since_s(history: History, sample: Sample) -> float:
    """Since the look before; clocks may be set back."""
    return max(0.0, sample.at_s - history.samples[-1].at_s) if history.samples else 0.0
