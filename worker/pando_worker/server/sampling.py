"""From what a request says about sampling, and the model's defaults, to the scheduler's terms."""

import random
from typing import TypeVar

from pando_worker.messages import SamplingParams
from pando_worker.server.generation_config import GenerationConfig
from pando_worker.server.protocol import SamplingFields

Number = TypeVar("Number", int, float)


def sampling_params(
    fields: SamplingFields, defaults: GenerationConfig, max_new_tokens: int
) -> SamplingParams:
    eos = () if fields.ignore_eos else defaults.eos_token_ids
    top_k = _given(fields.top_k, defaults.top_k)
    return SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=_given(fields.temperature, defaults.temperature),
        top_k=max(top_k, 0),
        top_p=_given(fields.top_p, defaults.top_p),
        min_p=_given(fields.min_p, defaults.min_p),
        seed=random.getrandbits(63) if fields.seed is None else fields.seed,
        stop_token_ids=tuple({*eos, *(fields.stop_token_ids or ())}),
    )


def _given(value: Number | None, default: Number) -> Number:
    return default if value is None else value
