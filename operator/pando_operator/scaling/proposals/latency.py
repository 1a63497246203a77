"""Proposals from targets of latency: the fewest replicas for which a queueing model, fed with what
the pool's own replicas were measured to do, predicts them. Never by trial.

The time to a first token is the sum of three parts, each at the target's percentile:

- the wait for room: as many servers as requests fit into the pool, each held as long as a request
  holds its tokens;
- the wait for the computation: one server a replica, held as long as a prompt takes;
- the prompt itself, and the step of a token.

A wait is that of a G/G/c queue by Allen and Cunneen, with Sakasegawa's approximation for the
probability of waiting, and exponential from there (L. Green, in Handbook of Healthcare Delivery
Systems, 2010, has both). Lengths of prompts are taken for log-normal with the measured variation.

The time between two tokens is that of the batch in which they are computed: with n replicas each
computes a n-th of the pool's tokens, and `Pace.line` has the time by batch. Batches vary like
Poisson's numbers. Where prefixes draw requests to some replicas, these compute more than their
part; how much more is measured and assumed for other sizes.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from pando_operator.resource.policy import MOST_REPLICAS
from pando_operator.scaling.decision import Proposal
from pando_operator.scaling.history.demand import average, demand_of, within
from pando_operator.scaling.history.history import Sample
from pando_operator.scaling.proposals.sizing import View

TTFT = "ttft"
INTER_TOKEN = "interToken"

NEGLIGIBLE = 1e-9


def by_ttft(view: View) -> Proposal | None:
    target_s = view.policy.target.ttft_seconds
    model = _model(view) if target_s else None
    if target_s is None or model is None:
        return None
    return _proposal(
        view, TTFT, "first tokens after", model.ttft_s, _reachable_ttft_s(view, model, target_s)
    )


def by_inter_token(view: View) -> Proposal | None:
    target_s = view.policy.target.inter_token_seconds
    model = _model(view) if target_s else None
    if target_s is None or model is None or model.line is None:
        return None
    return _proposal(view, INTER_TOKEN, "tokens every", model.token_s, target_s)


def _reachable_ttft_s(view: View, model: "LatencyModel", target_s: float) -> float:
    """The target, or if even idle replicas miss it, the time without waits and the tolerance: some
    long prompts at a high percentile must not let all others wait."""
    return max(target_s, (1 + view.policy.tolerance) * model.ttft_s(MOST_REPLICAS))


def unmet(view: View) -> list[str]:
    """Why a target of latency does not decide, in words; empty if all do or none is set."""
    target = view.policy.target
    words: list[str] = []
    if target.ttft_seconds is None and target.inter_token_seconds is None:
        return words
    model = _model(view)
    if model is None or (target.inter_token_seconds is not None and model.line is None):
        words.append("latency is not learned yet")
    if model is None:
        return words
    for name, seconds_for, target_s in (
        ("ttftSeconds", model.ttft_s, target.ttft_seconds),
        ("interTokenSeconds", model.token_s, target.inter_token_seconds),
    ):
        if target_s is not None and (alone_s := seconds_for(MOST_REPLICAS)) > target_s:
            words.append(
                f"no size meets {name} {target_s:g}: without any load it would be"
                f" {_seconds(alone_s)} at p{target.percentile:g}"
            )
            if seconds_for == model.ttft_s:
                words[-1] += f", sized for {_seconds(_reachable_ttft_s(view, model, target_s))}"
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """A pool's load, and what its replicas were measured to do. Times in seconds."""

    percentile: float  # as a share
    decoded_per_s: float  # tokens that the whole pool has to decode
    line: tuple[float, float] | None  # of `Pace`
    skew: float  # of the load, see `skew_of`
    computed_per_s: float  # prompt tokens that it has to compute
    prompt_s: float  # mean time to compute a prompt
    prompt_variation: float  # its squared coefficient of variation
    prefill_tokens_per_s: float  # of a replica
    held: float  # requests that hold room, or should
    places: float  # requests that fit into a replica
    residence_s: float | None  # how long a request holds its room

    def token_s(self, replicas: int) -> float:
        """Between two tokens, at the percentile; infinite if that many replicas cannot keep up."""
        if self.line is None:
            return 0.0
        skew = min(self.skew, replicas)
        batch = batch_of(skew * self.decoded_per_s / replicas, self.line)
        if not math.isfinite(batch):
            return math.inf
        alone_s, more_s = self.line
        batch = max(1.0, batch + self._normal * math.sqrt(batch))
        return alone_s + more_s * batch

    def ttft_s(self, replicas: int) -> float:
        """To a first token, at the percentile; infinite if that many replicas cannot keep up."""
        load = self.computed_per_s / (replicas * self.prefill_tokens_per_s)
        for_compute_s = self._wait_s(replicas, load, self.prompt_s, self.prompt_variation)
        for_room_s = 0.0
        if self.residence_s:
            places = replicas * self.places
            for_room_s = self._wait_s(places, self.held / places, self.residence_s, 1.0)
        sigma = math.sqrt(math.log1p(self.prompt_variation))
        own_s = self.prompt_s * math.exp(self._normal * sigma - sigma**2 / 2)
        return for_room_s + for_compute_s + own_s + self.token_s(replicas)

    def _wait_s(self, servers: float, load: float, held_s: float, variation: float) -> float:
        """At the percentile: of all requests, those that do not wait included."""
        if load >= 1:
            return math.inf
        waits = load ** (math.sqrt(2 * (servers + 1)) - 1)
        if waits <= max(NEGLIGIBLE, 1 - self.percentile):
            return 0.0
        mean_s = held_s * (1 + variation) / (2 * servers * (1 - load))  # of those that wait
        return mean_s * math.log(waits / (1 - self.percentile))

    @property
    def _normal(self) -> float:
        return NormalDist().inv_cdf(self.percentile)


def batch_of(decoded_per_s: float, line: tuple[float, float]) -> float:
    """How many requests decode at once in a replica that decodes so many tokens: by Little's law
    the tokens times the time of one, which grows with the batch. Infinite if it cannot keep up."""
    alone_s, more_s = line
    room = 1 - decoded_per_s * more_s
    return decoded_per_s * alone_s / room if room > 0 else math.inf


def skew_of(sample: Sample, line: tuple[float, float] | None) -> float:
    """How many times the mean load is the load of the replica in which the mean token is computed:
    1 if it is even, at most the number of replicas. From the time that tokens took."""
    if line is None or sample.decoded_per_s <= 0 or not sample.replicas or line[1] <= 0:
        return 1.0
    (alone_s, more_s), took_s = line, sample.decoding / sample.decoded_per_s
    load_per_s = (took_s - alone_s) / more_s / took_s
    return min(max(1.0, load_per_s * sample.replicas / sample.decoded_per_s), sample.replicas)


def _model(view: View) -> LatencyModel | None:
    """None until enough is known."""
    pace, window_s = view.history.pace, view.policy.window_seconds
    inside, demand = (
        within(view.history.samples, window_s),
        demand_of(view.history.samples, window_s),
    )
    prompt_tokens, rate = pace.prompt_tokens, pace.prefill_tokens_per_s
    if demand is None or prompt_tokens is None or not rate or not view.beats:
        return None
    running = average(inside, lambda sample: sample.running)
    # What waits has to be computed, too; what running requests do not show.
    more = max(1.0, view.needed_tokens(demand) / demand.pinned) if demand.pinned else 1.0
    held_each = demand.pinned / running if running and demand.pinned else 1.0
    return LatencyModel(
        percentile=view.policy.target.percentile / 100,
        decoded_per_s=more * average(inside, lambda sample: sample.decoded_per_s),
        line=pace.line,
        skew=average(inside, lambda sample: skew_of(sample, pace.line)),
        computed_per_s=more * average(inside, lambda sample: sample.computed_per_s),
        prompt_s=prompt_tokens / rate,
        prompt_variation=pace.prompt_variation,
        prefill_tokens_per_s=rate,
        held=more * running,
        places=max(1.0, view.history.usable_tokens / held_each),
        residence_s=view.history.residence_s,
    )


def _proposal(
    view: View, by: str, what: str, seconds_for: Callable[[int], float], target_s: float
) -> Proposal | None:
    """The fewest replicas within the target; the current number within the tolerance."""
    sizes = range(1, MOST_REPLICAS + 1)
    fewest = 1 + bisect_left(sizes, True, key=lambda size: seconds_for(size) <= target_s)
    if fewest > MOST_REPLICAS:
        return None  # `unmet` says so
    current = max(1, view.current)
    now_s = seconds_for(current)
    if fewest > current and now_s <= target_s * (1 + view.policy.tolerance):
        fewest = current
    words = f"{what} {_seconds(now_s)} on {current}"
    if fewest != current:
        words += f" and {_seconds(seconds_for(fewest))} on {fewest}"
    which = f"at p{view.policy.target.percentile:g}, target {_seconds(target_s)}"
    return Proposal(by, fewest, f"{words} {which}: wants {fewest}")


def _seconds(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "ever later"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
