"""Any values of the sampling fields are refused or run; none ends the scheduler, which would end
all
requests."""

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from pando_worker.messages import Command, Generate, LogprobsWanted
from pando_worker.models.generation_config import GenerationConfig
from pando_worker.runner.sampling.edits import add_bias, penalize
from pando_worker.runner.sampling.histories import Histories
from pando_worker.runner.sampling.sampler import sample
from pando_worker.server.errors import ApiError
from pando_worker.server.jobs.sampling import sampling_params, seeds
from pando_worker.server.protocol.native import NativeRequest
from tests.worker.scheduler.world import World

VOCAB = 256
PROMPT = [7, 8, 9]

_numbers = st.one_of(
    st.integers(-3, VOCAB),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30]),
    st.floats(),
    st.sampled_from([1e-300, 1e-45, 1e-38, 1e38, 1e39, 1e300]),
)
_values = st.one_of(
    _numbers,
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(_numbers | st.text(max_size=3), max_size=3),
    st.dictionaries(st.integers(-1, VOCAB).map(str) | st.text(max_size=3), _numbers, max_size=3),
)
_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "seed", "sampling_seed", "n", "logit_bias", "stop",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "stop_token_ids",
)  # fmt: skip
_sampling = st.dictionaries(st.sampled_from(_NAMES), _values, max_size=2)
_scores = st.fixed_dictionaries(
    {}, optional={"logprob_start_len": _values, "top_logprobs_num": _values}
)


@given(_sampling, _scores)
@example({"top_k": 2**63}, {})
@example({"stop_token_ids": [2**64]}, {})
@example({"temperature": 1.0, "top_p": 1e-300, "min_p": 1.0}, {})
@example({"repetition_penalty": 1e-300, "temperature": 1e-45}, {})
@example({"seed": 2**63 - 1, "n": 2}, {"logprob_start_len": 10**30})
def test_sampling_fields_are_refused_or_run(sampling: dict[str, Any], more: dict[str, Any]) -> None:
    body = {"input_ids": PROMPT, "sampling_params": sampling, "return_logprob": True, **more}
    try:
        request = NativeRequest.model_validate(body)
    except (ValidationError, ApiError):
        return
    fields = request.sampling_params
    if max([0, *(fields.logit_bias or ()), *(fields.stop_token_ids or ())]) >= VOCAB:
        return  # refused against the model
    world = World()
    for seed in seeds(fields.seed, fields.n or 1)[-2:]:
        params = sampling_params(
            fields, GenerationConfig(), max_new_tokens=4, min_new_tokens=2, seed=seed
        )
        start = None if request.logprob_start_len < 0 else request.logprob_start_len + 1
        wanted = LogprobsWanted(top=request.top_logprobs_num, prompt_start=start)
        order = Generate(rid=str(seed), input_ids=PROMPT, sampling=params, logprobs=wanted)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=Command)
        world.tokens[order.rid] = []
        world.collect(world.scheduler.receive(sent))
    world.run()
    batch = world.batches[0].sampling
    logits = torch.randn(len(batch.seed), VOCAB, generator=torch.Generator().manual_seed(0))
    if batch.bias is not None:
        add_bias(logits, batch.bias)
    if batch.penalties is not None:
        histories = Histories(8, world.kv.max_request_tokens, torch.device("cpu"))
        added = torch.from_numpy(batch.penalties.tokens)
        penalize(logits, batch.penalties, histories.add(batch.penalties, added, VOCAB))
    assert (sample(logits, batch) >= 0).all()


@pytest.mark.parametrize("value", ["", [], {}, "x", [None], {"a": 1}])
def test_logit_bias_of_another_kind_is_refused_or_empty(value: object) -> None:
    body = {"input_ids": PROMPT, "sampling_params": {"logit_bias": value}}
    if value == {}:
        assert NativeRequest.model_validate(body).sampling_params.logit_bias == {}
    else:
        with pytest.raises((ValidationError, ApiError)):
            NativeRequest.model_validate(body)
