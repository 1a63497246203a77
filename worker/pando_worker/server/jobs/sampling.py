"""Makes the scheduler's sampling parameters from a request's fields and the model's defaults."""

import random
from typing import TypeVar

from pando_worker.messages import SamplingParams
from pando_worker.models.generation_config import GenerationConfig
from pando_worker.server.protocol.sampling import SamplingFields

Number = TypeVar("Number", int, float)


def sampling_params(
    fields: SamplingFields,
    defaults: GenerationConfig,
    *,
    max_new_tokens: int,
    min_new_tokens: int,
    seed: int,
) -> SamplingParams:
    top_k = _given(fields.top_k, defaults.top_k)
    return SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=_given(fields.temperature, defaults.temperature),
        top_k=max(top_k, 0),
        top_p=_given(fields.top_p, defaults.top_p),
        min_p=_given(fields.min_p, defaults.min_p),
        seed=seed,
        stop_token_ids=stop_token_ids(fields, defaults),
        min_new_tokens=min_new_tokens,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        repetition_penalty=_given(fields.repetition_penalty, defaults.repetition_penalty),
        logit_bias=fields.logit_bias or {},
    )


def stop_token_ids(fields: SamplingFields, defaults: GenerationConfig) -> tuple[int, ...]:
    eos = () if fields.ignore_eos else defaults.eos_token_ids
    return tuple(dict.fromkeys([*eos, *(fields.stop_token_ids or ())]))


def seeds(first: int | None, count: int) -> list[int]:
    """The 64-bit seeds of a request's choices, counted up from the client's or a random one."""
    if first is None:
        first = random.getrandbits(63)
    return [(first + i + 2**63) % 2**64 - 2**63 for i in range(count)]


def _given(value: Number | None, default: Number) -> Number:
    return default if value is None else value
