"""What is learned from engines' reports and answers: the pure parts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.registry.upstreams import Sampled
from pando_router.upstreams.engine import (
    UnreadableError,
    read_llamacpp_props,
    read_models,
    read_sglang_info,
    read_vllm_metrics,
)
from pando_router.upstreams.learning import SAMPLES, Learner, Rate, weighted_quantile

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(("data", "id", "parent", "total_slots")) | st.text(), inner
        )
    ),
)


@given(st.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_answers_is_read_or_refused(body: bytes) -> None:
    for read in (read_models, read_sglang_info, read_llamacpp_props, read_vllm_metrics):
        try:
            read(body)
        except UnreadableError as error:
            assert "it" in str(error)


@given(st.text(alphabet='vllm:kv_cache_usage_perc{}="0123456789.eE+-NaInf \n', max_size=200))
def test_no_metrics_are_too_odd_to_be_read(text: str) -> None:
    name = "vllm:cache_config_info"
    odd = f'vllm:kv_cache_usage_perc {text}\n{name}{{block_size="16",num_gpu_blocks="9"}} 1\n'
    assert read_vllm_metrics(odd.encode()).capacity_tokens in (0, 144)


def test_two_engines_of_one_server_are_added_up() -> None:
    lines = [
        line
        for engine, usage in (("0", "0.5"), ("1", "0.25"))
        for line in (
            f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {usage}',
            f'vllm:cache_config_info{{block_size="16",engine="{engine}",num_gpu_blocks="100"}} 1.0',
            f'vllm:num_requests_running{{engine="{engine}"}} 2.0',
        )
    ]
    found = read_vllm_metrics("\n".join(lines).encode())
    assert (found.capacity_tokens, found.pinned_tokens, found.running) == (3200, 1200, 4)


def test_the_first_model_without_a_parent_is_the_replicas_own() -> None:
    cards = [
        {"id": "sql", "parent": "llama"},
        {"id": "llama", "parent": None, "max_model_len": 4096, "owned_by": "vllm"},
        {"id": "llama-alias", "parent": None},
    ]
    engine = read_models(json.dumps({"object": "list", "data": cards}).encode())
    assert (engine.model, engine.adapters) == ("llama", ("llama-alias", "sql"))
    assert (engine.max_request_tokens, engine.kind) == (4096, "vllm")


_SAMPLES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 20)), min_size=1, max_size=30)


@given(_SAMPLES, st.sampled_from((0.25, 0.5, 0.7, 1.0)))
def test_a_weighted_quantile_is_that_of_values_repeated_by_their_weight(
    samples: list[tuple[int, int]], quantile: float
) -> None:
    repeated = sorted(value for value, weight in samples for _ in range(weight))
    rank = next(n for n in range(1, len(repeated) + 1) if n >= quantile * len(repeated) - 1e-9)
    found = weighted_quantile([(float(v), float(w)) for v, w in samples], quantile)
    assert found == pytest.approx(repeated[rank - 1])


def test_a_few_delayed_answers_do_not_slow_an_engine_down() -> None:
    rate = Rate()
    for number in range(100):
        rate.add(1_000, 5.0 if number % 3 == 0 else 0.1)  # a third met another client's prompts
    found = rate.take()
    assert found.value == pytest.approx(10_000)
    assert found.samples == 100
    assert rate.take().samples == 0
    for _ in range(SAMPLES):
        rate.add(1_000, 1.0)
    assert rate.take().value == pytest.approx(1_000)


def test_what_redis_did_not_get_is_sent_with_the_next_heartbeat() -> None:
    learner = Learner()
    learner.prefill.add(1_000, 1.0)
    learner.prompt(400, 100)
    learned = learner.take()
    learner.put_back(learned)
    learner.prompt(800, 100)
    again = learner.take()
    assert again.prefill == learned.prefill
    assert again.bytes_per_token == Sampled(6.0, 2)
    assert learner.take().bytes_per_token.samples == 0
