"""Observations of a worker: a time, as the sum of steps."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pando_sim.cost.calibration.client import Heard
from pando_sim.cost.least_squares import Floats
from pando_worker.scheduler.batches.context_cost import attended

UNKNOWNS = (
    "request_s",
    "prompt_token_s",
    "step_s",
    "token_s",
    "prefill_step_s",
    "prefill_context_s",
    "decode_row_s",
    "decode_context_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step, as the arguments of `CostModel.step_s`."""

    prefill_tokens: int = 0
    prefill_context: int = 0
    decodes: int = 0
    decode_context: float = 0.0

    def features(self, free_tokens: float) -> list[float]:
        """The features of the last six unknowns."""
        return [
            1.0,
            max(0.0, self.prefill_tokens + self.decodes - free_tokens),
            1.0 if self.prefill_tokens else 0.0,
            self.prefill_context,
            self.decodes,
            self.decode_context,
        ]


@dataclass(frozen=True, slots=True)
class Observation:
    what: str  # its name in the table of residuals
    seconds: float
    steps: tuple[Step, ...]
    prompt_tokens: int | None = None  # of the request whose time to first token this is

    def features(self, free_tokens: float) -> Floats:
        """[unknowns], in their order."""
        own = [0.0, 0.0] if self.prompt_tokens is None else [1.0, float(self.prompt_tokens)]
        total = np.zeros(len(UNKNOWNS) - 2)
        for step in self.steps:
            total += step.features(free_tokens)
        return np.array([*own, *total])


def chunks(start: int, count: int, chunk_tokens: int) -> tuple[Step, ...]:
    """The steps that prefill `count` tokens behind `start` cached ones."""
    rows = []
    for begin in range(start, start + count, chunk_tokens):
        size = min(chunk_tokens, start + count - begin)
        rows.append(Step(prefill_tokens=size, prefill_context=attended(begin, size)))
    return tuple(rows)


def first_token(what: str, heard: Heard, chunk_tokens: int) -> Observation:
    """A request that ran alone: from sending it to its first token."""
    cached = heard.cached_tokens
    steps = chunks(cached, heard.prompt_tokens - cached, chunk_tokens)
    return Observation(what, heard.ttft_s, steps, heard.prompt_tokens)


def decoding(what: str, heard: list[Heard]) -> Observation | None:
    """The mean step of requests that were sent together, while all of them decode; None if that
    time was too short."""
    begin = max(one.token_s[0] for one in heard)
    end = min(one.token_s[-1] for one in heard)
    contexts, seconds = [], []
    for one in heard:
        inside = [at for at in one.token_s if begin <= at <= end]
        if len(inside) < 8:
            return None
        heard_of = one.tokens_heard_of
        before = sum(at < begin for at in one.token_s) / heard_of
        count = (len(inside) - 1) / heard_of
        contexts.append(one.prompt_tokens + before + count / 2 + 1)
        seconds.append((inside[-1] - inside[0]) / count)
    step = Step(decodes=len(heard), decode_context=sum(contexts))
    return Observation(what, sum(seconds) / len(heard), (step,))


def interrupted(what: str, stream: Heard, other: Heard, chunk_tokens: int) -> Observation | None:
    """The longest gap of a stream while a prompt of one chunk is computed beside it; None if that
    prompt did not arrive during the stream."""
    new = other.prompt_tokens - other.cached_tokens
    times = stream.token_s
    gaps = [(after - before, before) for before, after in pairwise(times)]
    during = [gap for gap in gaps if gap[1] + gap[0] > other.sent_s and gap[1] < other.token_s[0]]
    if new >= chunk_tokens or not during:
        return None
    seconds, began = max(during)
    produced = sum(at <= began for at in times) / stream.tokens_heard_of
    (prefill,) = chunks(other.cached_tokens, new, chunk_tokens)
    step = Step(
        prefill_tokens=prefill.prefill_tokens,
        prefill_context=prefill.prefill_context,
        decodes=1,
        decode_context=stream.prompt_tokens + produced,
    )
    return Observation(what, seconds, (step,))


def middle(observations: list[Observation]) -> Observation:
    """The observation of median length, among repetitions of one measurement."""
    ordered = sorted(observations, key=lambda one: one.seconds)
    return ordered[(len(ordered) - 1) // 2]
