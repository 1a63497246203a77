"""Adds an observation of a pool to its history."""

import math
from dataclasses import replace

from pando_fleet.records.queues import Queued
from pando_fleet.registry.replica import Heartbeat, Replica
from pando_operator.resource.policy import START_LIMIT_S
from pando_operator.scaling.history.demand import within
from pando_operator.scaling.history.history import (
    COUNTERS_KEPT,
    SAMPLES_KEPT,
    Counter,
    History,
    Sample,
)
from pando_operator.scaling.history.pace import Tally, learned
from pando_operator.scaling.snapshot import Signals, Snapshot

STALE_S = 5.0
"""Age above which a heartbeat is ignored; workers send two a second."""

SAMPLE_EVERY_S = 0.5
"""Observations closer together than this count as one."""

LEARNED_S = 300.0
"""Time constant for smoothing how long tokens stay pinned, and the usable share."""

BUSY_ENOUGH = 0.01
"""Share of the capacity that must be pinned before either of the two is measured."""

USABLE_S = 6 * 3600.0
"""Time in which the estimate of the usable share grows e-fold while nothing contradicts it."""


def fresh_beats(signals: Signals | None) -> tuple[Heartbeat, ...]:
    """Heartbeats of replicas that are fresh enough and have a capacity."""
    if signals is None:
        return ()
    return tuple(one.beat for one in signals.replicas if is_fresh(one))


def is_fresh(replica: Replica) -> bool:
    return replica.age_ms <= 1000 * STALE_S and replica.beat.capacity_tokens > 0


def is_blind(snapshot: Snapshot) -> bool:
    """Whether no ready replica has reported that could."""
    if snapshot.signals is None:
        return True
    return snapshot.ready > snapshot.silent and not fresh_beats(snapshot.signals)


def problem_of(snapshot: Snapshot) -> str:
    """What is wrong with the signals, in words; "" if they are complete."""
    if snapshot.signals is None:
        return "no signals: Redis is unreachable"
    fresh = len(fresh_beats(snapshot.signals))
    missing = snapshot.ready - snapshot.silent - fresh
    if missing <= 0:
        return "" if snapshot.ready or not snapshot.current else "no replica is ready"
    oldest = max((one.age_ms for one in snapshot.signals.replicas), default=0) / 1000
    stale = f", the oldest signals are {oldest:.0f} s old" if oldest > STALE_S else ""
    return f"no fresh signals from {missing} of {snapshot.ready} ready replicas{stale}"


def observed(snapshot: Snapshot, window_s: float, kept_s: float, now_s: float) -> History:
    """The history with this observation; keeps the samples of the last `kept_s` seconds."""
    history = snapshot.history
    if not history.highs:
        # Without a past, the current size counts as recommended.
        history = history.recommended(now_s, snapshot.current)
    history = _awake(history, snapshot, now_s)
    if snapshot.signals is None or is_blind(snapshot):
        return history
    beats, queued = fresh_beats(snapshot.signals), snapshot.signals.queued
    last_busy_s = history.last_busy_s
    known = {counter.incarnation: counter for counter in history.counters}
    computed = hot = 0
    for beat in beats:
        before = known.get(beat.incarnation)
        if before is not None:
            computed += max(0, beat.prompt_tokens_total - before.prompt_tokens)
            hot += max(0, beat.hot_evicted_tokens_total - before.hot_evicted_tokens)
    if computed or queued.requests or any(beat.running or beat.waiting for beat in beats):
        last_busy_s = now_s
    hot += history.samples[-1].hot_evicted_tokens if history.samples else 0
    fresh = [one for one in snapshot.signals.replicas if is_fresh(one)]
    pace, tallies = learned(history.pace, history.tallies, fresh, now_s)
    sample = _sample(beats, tallies, queued, hot, now_s)
    samples = _kept(history.samples, sample, kept_s)
    return replace(
        history,
        samples=samples,
        counters=_counters(history, beats),
        tallies=tallies,
        pace=pace,
        last_busy_s=last_busy_s,
        capacity_tokens=_capacity(history, beats),
        residence_s=_residence(history, beats, sample),
        usable_share=_usable(history, samples, max(window_s, history.residence_s or 0.0)),
    )


def _awake(history: History, snapshot: Snapshot, now_s: float) -> History:
    """A pool is not idle while its first replicas start, since no request could reach them: a model
    that loads for longer than `idleSeconds` would never be ready. Above START_LIMIT_S it may be."""
    starts = snapshot.current > 0 and not snapshot.ready
    since_s = history.starting_since_s if starts else None
    if starts and since_s is None:
        since_s = now_s
    is_busy = since_s is not None and now_s - since_s < START_LIMIT_S
    last_busy_s = now_s if is_busy or history.last_busy_s is None else history.last_busy_s
    return replace(history, starting_since_s=since_s, last_busy_s=last_busy_s)


def queue_wait_s(beats: tuple[Heartbeat, ...], queued: Queued) -> float:
    """The longest wait: so far, of requests in routers; expected, of those in replicas."""
    prompts = sum(beat.waiting_tokens for beat in beats)
    rate = sum(beat.prefill_tokens_per_s for beat in beats)
    waited_s = queued.waited_ms / 1000 if queued.requests else 0.0
    return max(waited_s, prompts / rate if rate > 0 else 0.0)


def place_wait_s(beats: tuple[Heartbeat, ...]) -> float:
    """By Little's law: the requests that wait in replicas over the rate at which running ones end,
    which is that of their KV tokens over the tokens of a request."""
    ended_per_s = sum(
        beat.running * beat.release_tokens_per_s / beat.pinned_tokens
        for beat in beats
        if beat.pinned_tokens
    )
    waiting = sum(beat.waiting for beat in beats)
    return waiting / ended_per_s if ended_per_s > 0 else 0.0


def _sample(
    beats: tuple[Heartbeat, ...],
    tallies: tuple[Tally, ...],
    queued: Queued,
    hot: int,
    now_s: float,
) -> Sample:
    heard = {beat.incarnation for beat in beats}
    rates = [tally for tally in tallies if tally.incarnation in heard]
    share = queued.requests / max(1, len(beats))
    waiting = sum(beat.waiting_tokens + beat.waiting_output_tokens for beat in beats)
    crowded = [beat for beat in beats if 0 < beat.running <= beat.waiting + share]
    return Sample(
        at_s=now_s,
        pinned_tokens=sum(beat.pinned_tokens for beat in beats),
        waiting_tokens=waiting + queued.tokens,
        crowded_pinned_tokens=sum(beat.pinned_tokens for beat in crowded),
        crowded_room_tokens=sum(beat.capacity_tokens for beat in crowded),
        capacity_tokens=sum(beat.capacity_tokens for beat in beats),
        release_tokens_per_s=sum(beat.release_tokens_per_s for beat in beats),
        queue_wait_s=queue_wait_s(beats, queued),
        place_wait_s=place_wait_s(beats),
        running=sum(beat.running for beat in beats),
        computed_per_s=sum(tally.computed_per_s for tally in rates),
        decoded_per_s=sum(tally.decoded_per_s for tally in rates),
        decoding=sum(tally.batch for tally in rates),
        hot_evicted_tokens=hot,
        replicas=len(beats),
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


def _counters(history: History, beats: tuple[Heartbeat, ...]) -> tuple[Counter, ...]:
    heard = {beat.incarnation for beat in beats}
    # A replica that is silent for a moment keeps its counter.
    silent = [each for each in history.counters if each.incarnation not in heard]
    new = [
        Counter(beat.incarnation, beat.prompt_tokens_total, beat.hot_evicted_tokens_total)
        for beat in beats
    ]
    return tuple((silent + new)[-COUNTERS_KEPT:])


def _capacity(history: History, beats: tuple[Heartbeat, ...]) -> int:
    if not beats:
        return history.capacity_tokens
    return sum(beat.capacity_tokens for beat in beats) // len(beats)


def _residence(history: History, beats: tuple[Heartbeat, ...], sample: Sample) -> float | None:
    """By Little's law: the pinned tokens over the rate at which they are released."""
    capacity = sum(beat.capacity_tokens for beat in beats)
    if sample.release_tokens_per_s <= 0 or sample.pinned_tokens < BUSY_ENOUGH * capacity:
        return history.residence_s
    now = sample.pinned_tokens / sample.release_tokens_per_s
    if history.residence_s is None or not history.samples:
        return now if history.residence_s is None else history.residence_s
    keep = math.exp(-_since_s(history, sample) / LEARNED_S)
    return history.residence_s * keep + now * (1 - keep)


def _usable(history: History, samples: tuple[Sample, ...], window_s: float) -> float:
    """The share of their capacity that replicas fill while requests wait.

    It is below 1 if something other than memory limits them, mostly the time to compute prompts.
    The estimate rises slowly with time, so that the pool tries again how much it can hold. New
    measurements are smoothed, too, because requests that have just begun hold few tokens.
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
    """Seconds since the previous sample; at least 0, since clocks may be set back."""
    return max(0.0, sample.at_s - history.samples[-1].at_s) if history.samples else 0.0
