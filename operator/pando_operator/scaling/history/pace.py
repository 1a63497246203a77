"""How fast a pool's replicas compute, learned from their counters, for targets of latency.

Between two heartbeats of a replica, with `decoded` output tokens after the first ones and `seconds`
as the sum of their steps, one token took seconds / decoded, and by Little's law
seconds / time passed requests were decoding on the average. So each pair of heartbeats is a point
of the curve "time of a token by batch", which steps of an engine keep close to a line: they read
the weights once, and then each request adds its part. `Pace` holds the sums of its least-squares
fit, and those of the sizes of prompts.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pando_fleet.registry.replica import Heartbeat, Replica

LEARNED_S = 1800.0
"""Time constant with which old measurements are forgotten."""

APART_S = 0.4
"""Heartbeats closer together are one."""

TALLIES_KEPT = 1024

ENOUGH_DECODES, ENOUGH_PROMPTS = 1000.0, 5.0
"""Fewer teach nothing."""

LEAST_SPREAD = 0.05
"""The standard deviation of the batch, as a share of its mean, below which its effect on a token's
time is unknown."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The counters of one incarnation of a replica, and its rates since the heartbeat before."""

    incarnation: str
    at_s: float  # of the heartbeat
    prompts: int
    computed_tokens: int  # of the prompts; the others were cached
    computed_squares: float
    decoded_tokens: int
    decode_s: float
    computed_per_s: float = 0.0
    decoded_per_s: float = 0.0
    batch: float = 0.0  # mean number of requests that decoded

    def since(self, before: "Tally") -> "Tally":
        """With the rates since an earlier tally of the same incarnation."""
        passed_s = self.at_s - before.at_s
        return replace(
            self,
            computed_per_s=max(0, self.computed_tokens - before.computed_tokens) / passed_s,
            decoded_per_s=max(0, self.decoded_tokens - before.decoded_tokens) / passed_s,
            batch=max(0.0, self.decode_s - before.decode_s) / passed_s,
        )


@dataclass(frozen=True, slots=True)
class Pace:
    """Sums over pairs of heartbeats, older ones with less weight."""

    at_s: float = 0.0  # until which time measurements were added
    decodes: float = 0.0
    # Weighted by the number of decodes: the batch b, the time of a token t, b·b and b·t.
    batches: float = 0.0
    token_s: float = 0.0
    batch_squares: float = 0.0
    batch_token_s: float = 0.0
    prompts: float = 0.0
    computed_tokens: float = 0.0
    computed_squares: float = 0.0
    # By prompt tokens, as replicas report it.
    prefill_tokens: float = 0.0
    prefill_s: float = 0.0

    @property
    def line(self) -> tuple[float, float] | None:
        """Seconds of a token alone, and more for each request of the batch; None if unknown."""
        if self.decodes < ENOUGH_DECODES:
            return None
        batch, token_s = self.batches / self.decodes, self.token_s / self.decodes
        variance = self.batch_squares / self.decodes - batch**2
        if variance <= (LEAST_SPREAD * batch) ** 2:
            return None
        slope = (self.batch_token_s / self.decodes - batch * token_s) / variance
        slope = min(max(0.0, slope), token_s / batch)
        return token_s - slope * batch, slope

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return self.prefill_tokens / self.prefill_s if self.prefill_s > 0 else None

    @property
    def prompt_tokens(self) -> float | None:
        """Mean uncached tokens of a prompt."""
        if self.prompts < ENOUGH_PROMPTS or not self.computed_tokens:
            return None
        return self.computed_tokens / self.prompts

    @property
    def prompt_variation(self) -> float:
        """Squared coefficient of variation of a prompt's uncached tokens."""
        mean = self.prompt_tokens
        if mean is None:
            return 1.0
        return max(0.0, self.computed_squares / self.prompts / mean**2 - 1)

    def forgotten(self, now_s: float) -> "Pace":
        keep = math.exp(-max(0.0, now_s - self.at_s) / LEARNED_S)
        return Pace(
            now_s,
            self.decodes * keep,
            self.batches * keep,
            self.token_s * keep,
            self.batch_squares * keep,
            self.batch_token_s * keep,
            self.prompts * keep,
            self.computed_tokens * keep,
            self.computed_squares * keep,
            self.prefill_tokens * keep,
            self.prefill_s * keep,
        )

    def with_pair(self, before: Tally, now: Tally, prefill_tokens_per_s: float) -> "Pace":
        decoded = now.decoded_tokens - before.decoded_tokens
        seconds = now.decode_s - before.decode_s
        found = self
        if decoded > 0 and seconds > 0:
            batch, each_s = seconds / (now.at_s - before.at_s), seconds / decoded
            found = replace(
                found,
                decodes=found.decodes + decoded,
                batches=found.batches + decoded * batch,
                token_s=found.token_s + seconds,
                batch_squares=found.batch_squares + decoded * batch**2,
                batch_token_s=found.batch_token_s + decoded * batch * each_s,
            )
        computed = now.computed_tokens - before.computed_tokens
        if now.prompts > before.prompts and computed >= 0:
            rate = prefill_tokens_per_s
            found = replace(
                found,
                prompts=found.prompts + now.prompts - before.prompts,
                computed_tokens=found.computed_tokens + computed,
                computed_squares=found.computed_squares
                + max(0.0, now.computed_squares - before.computed_squares),
                prefill_tokens=found.prefill_tokens + (computed if rate > 0 else 0),
                prefill_s=found.prefill_s + (computed / rate if rate > 0 else 0.0),
            )
        return found


NOTHING_LEARNED = Pace()


def learned(
    pace: Pace, tallies: tuple[Tally, ...], replicas: Iterable[Replica], now_s: float
) -> tuple[Pace, tuple[Tally, ...]]:
    """The pace with what replicas have done since their last tallies, and the new tallies.

    A replica that is not among `replicas`, such as one that is silent for a moment, keeps its own.
    """
    known = {tally.incarnation: tally for tally in tallies}
    pairs: list[tuple[Tally, Tally, float]] = []
    for one in replicas:
        now = _tally(one.beat, now_s - one.age_ms / 1000)
        before = known.pop(now.incarnation, None)
        if before is not None and now.at_s - before.at_s < APART_S:
            now = before
        elif before is not None:
            now = now.since(before)
            pairs.append((before, now, one.beat.prefill_tokens_per_s))
        known[now.incarnation] = now
    # While nothing is computed, nothing is forgotten: an idle pool's status stays as it is.
    if any(now.computed_per_s or now.decoded_per_s for _, now, _ in pairs):
        pace = pace.forgotten(now_s)
        for before, now, rate in pairs:
            pace = pace.with_pair(before, now, rate)
    return pace, tuple(known.values())[-TALLIES_KEPT:]


def _tally(beat: Heartbeat, at_s: float) -> Tally:
    return Tally(
        incarnation=beat.incarnation,
        at_s=at_s,
        prompts=beat.prompts_total,
        computed_tokens=beat.prompt_tokens_total - beat.cached_prompt_tokens_total,
        computed_squares=beat.computed_squares_total,
        decoded_tokens=beat.decoded_tokens_total,
        decode_s=beat.decode_seconds_total,
    )
