"""Models of transformers with our attention, compared with transformers' own attention."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    Cohere2Config,
    CohereConfig,
    DeepseekV3Config,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    OlmoeConfig,
    OPTConfig,
    Phi3Config,
    StableLmConfig,
)

from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, DoesNotFit, UnsupportedModel
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.transformers_backend.model import TransformersCausalLM
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import SHAPE, Reference, prompt
from tests.worker.model.engine import engine
from tests.worker.model.paged import CPU, BareModel, Row, assert_hits_change_no_distribution

_LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 2.0, 4.0, 7.0],
    "original_max_position_embeddings": 16,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
# Windows are shorter than the prompts, and caps and scales far from 1, so that they count.
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "llama, dynamic rope": (
        LlamaConfig,
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}},
    ),
    "gpt-oss": (
        GptOssConfig,
        {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6},
    ),
    "gemma2": (
        Gemma2Config,
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 6,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "deepseek-v3": (DeepseekV3Config, _LATENT),
    "gpt-neox": (
        GPTNeoXConfig,
        {"rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    ),
    "stablelm": (StableLmConfig, {"use_qkv_bias": True, "qk_layernorm": True}),
    "cohere": (CohereConfig, {"logit_scale": 0.3, "use_qk_norm": True}),
    "cohere2": (Cohere2Config, {"logit_scale": 0.3, "sliding_window": 6, "num_hidden_layers": 4}),
    "granite": (
        GraniteConfig,
        {
            "logits_scaling": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.5,
            "embedding_multiplier": 2.0,
        },
    ),
    "olmoe": (OlmoeConfig, {"num_experts": 6, "num_experts_per_tok": 2}),
    "phi3, long rope": (Phi3Config, {"pad_token_id": 0, "rope_parameters": _LONG_ROPE}),
    "gpt2": (GPT2Config, {"n_positions": 256}),
    "opt": (OPTConfig, {"ffn_dim": 48, "word_embed_proj_dim": 24}),
}
# transformers chooses LongRoPE's factors by the length of each sequence, the worker by the longest
# that it serves; so transformers gets meaningless tokens after the real ones.
AT_LEAST = {"phi3, long rope": 17}
PROMPTS = [prompt(length, seed=length) for length in (1, 9, 33, 2)]


class Served:
    """A reference, and our model of it."""

    def __init__(self, path: Path, name: str) -> None:
        config_type, fields = CASES[name]
        at_least = AT_LEAST.get(name, 0)
        self.reference = Reference(path, config_type=config_type, at_least=at_least, **fields)
        self.model = BareModel(path, impl="transformers")
        self._best: dict[tuple[int, ...], list[int]] = {}

    def of(self, dtype: torch.dtype) -> BareModel:
        if dtype == torch.float32:
            return self.model
        return BareModel(self.reference.path, dtype=dtype, impl="transformers")

    def best(self, tokens: list[int]) -> list[int]:
        """The best next token after each of `tokens`; results are kept."""
        key = tuple(tokens)
        if key not in self._best:
            self._best[key] = self.reference.all_logits(tokens).argmax(-1).tolist()
        return self._best[key]


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(tmp_path_factory.mktemp("transformers"), request.param)


def assert_same(logits: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


def test_logits_equal_those_of_transformers(served: Served) -> None:
    """For a prefill and decodes after it, one of them after a cache hit."""
    model, reference = served.model, served.reference
    model.empty(page_size=4)
    rows = [Row(list(tokens)) for tokens in PROMPTS]
    expected = [reference.all_logits(row.tokens) for row in rows]
    assert_same(model.run(rows), torch.cat(expected))
    for token in (5, 8):
        for row in rows:
            row.tokens.append(token)
        expected = [reference.logits(row.tokens)[None] for row in rows]
        assert_same(model.run(rows), torch.cat(expected))


def test_greedy_tokens_equal_those_of_transformers_in_any_batch(served: Served) -> None:
    """Each token is the best after the previous ones, for any pages and chunks."""
    for page_size, chunk in ((1, 7), (4, 2), (16, 100)):
        served.model.empty(page_size)
        for tokens, answer in zip(PROMPTS, served.model.greedy(PROMPTS, 8, chunk), strict=True):
            best = served.best(tokens + answer)
            assert answer == best[len(tokens) - 1 : -1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_cache_hit_does_not_change_the_distribution(served: Served, dtype: torch.dtype) -> None:
    model = served.of(dtype)
    model.empty(page_size=4)
    assert_hits_change_no_distribution(model, prompt(47, seed=1))


def test_sizes_are_known_before_weights_are_read(served: Served) -> None:
    path = served.reference.path
    model = build_model(read_config(path, "transformers"), torch.float32, CPU)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert weight_bytes(model) == sum(p.nbytes for p in served.reference.model.parameters())
    pool = served.model.pool
    shapes = [(k.shape[1:], v.shape[1:]) for k, v in zip(pool.k, pool.v, strict=True)]
    assert shapes == [
        ((layer.kv_heads, layer.head_dim), (layer.kv_heads, layer.v_head_dim))
        for layer in model.attention_layers
    ]


def test_latent_attention_has_keys_wider_than_its_values(tmp_path: Path) -> None:
    config = DeepseekV3Config(**SHAPE | _LATENT)
    (layer, _) = build_model(saved(config, tmp_path), torch.float32, CPU).attention_layers
    assert not layer.latent
    assert (layer.kv_heads, layer.head_dim, layer.v_head_dim) == (4, 12, 6)


def test_half_precision_stays_close(tmp_path: Path) -> None:
    """GPT-OSS: sinks, windows, experts."""
    config_type, fields = CASES["gpt-oss"]
    reference = Reference(tmp_path, config_type=config_type, dtype=torch.bfloat16, **fields)
    model, row = BareModel(tmp_path, dtype=torch.bfloat16, impl="transformers"), Row(prompt(30))
    expected = reference.all_logits(row.tokens)
    assert (model.run([row]) - expected).norm() < 0.08 * expected.norm()


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("gpt-neox", "off"),
        ("cohere", "on"),
        ("deepseek-v3", "on"),
        ("gemma2", "off"),
        ("gpt-oss", "on"),
    ],
)
def test_scheduler_and_cache_give_the_tokens_of_transformers(
    tmp_path: Path, name: str, kernels: str
) -> None:
    """Through the whole engine: chunks, cache hits, and a pool that is too small for all
    requests."""
    config_type, fields = CASES[name]
    reference = Reference(tmp_path, config_type=config_type, **fields)
    world = engine(
        tmp_path, pages=24, window_ratio=0.9, cpu_kernels=kernels, model_impl="transformers"
    )
    shared = prompt(24)
    prompts = {f"r{i}": [*shared[: 8 * i], *prompt(5 + i, seed=i)] for i in range(4)}
    for turn in range(2):
        for rid, tokens in prompts.items():
            world.send(f"{rid}.{turn}", tokens, max_new_tokens=16)
        world.run()
        world.check_ownership()
    assert world.scheduler.stats().retracted_requests_total > 0
    assert world.kv.cache.evictable_pages > 0
    for rid, tokens in prompts.items():
        expected = reference.greedy(tokens, 16)
        assert [world.tokens[f"{rid}.{turn}"] for turn in range(2)] == [expected, expected]


@pytest.mark.parametrize(
    ("changes", "impl", "is_own"),
    [
        ({}, "auto", True),
        ({}, "transformers", False),
        ({"hidden_act": "gelu"}, "auto", False),
    ],
)
def test_auto_takes_transformers_for_what_the_own_code_lacks(
    tmp_path: Path, changes: dict[str, Any], impl: Any, is_own: bool
) -> None:
    reference, row = Reference(tmp_path, **changes), Row(prompt(20))
    model = BareModel(tmp_path, impl=impl)
    assert isinstance(model.model, TransformersCausalLM) != is_own
    assert_same(model.run([row]), reference.all_logits(row.tokens))


def saved(config: Any, path: Path, architecture: str | None = None) -> Any:
    """The config of a model without weights."""
    name = type(config).__name__.replace("Text", "").removesuffix("Config")
    config.architectures = [architecture or f"{name}ForCausalLM"]
    config.save_pretrained(path)
    return read_config(path, "transformers")


REFUSED: dict[str, tuple[str, str | None, dict[str, Any], str]] = {
    "state space": ("MambaConfig", None, {"max_position_embeddings": 64}, "keep a state"),
    "state space beside attention": ("FalconH1Config", None, {}, "keep a state"),
    "linear attention": ("Qwen3NextConfig", None, {}, "keep a state"),
    "convolutions": (
        "Lfm2Config",
        None,
        {"layer_types": ["conv", "full_attention"]},
        "layers of type conv",
    ),
    "ALiBi": ("BloomConfig", None, {"max_position_embeddings": 64}, "the attention interface"),
    "attention of its own": ("FalconConfig", None, {}, "the attention interface"),
    "both directions": ("BertConfig", "BertLMHeadModel", {}, "not causal"),
    "chunks": (
        "Llama4TextConfig",
        "Llama4ForCausalLM",
        {"num_local_experts": 2, "attention_chunk_size": 16, "num_hidden_layers": 4},
        "its mask depends on more than positions",
    ),
    "chosen keys": ("DeepseekV32Config", None, _LATENT, "layers of type indexed_attention"),
    "attention twice a layer": ("DiffLlamaConfig", None, {}, "call attention 4 times"),
    "a classifier": (
        "LlamaConfig",
        "LlamaForSequenceClassification",
        {},
        "and classifies",
    ),
    "quantized weights": (
        "LlamaConfig",
        None,
        {"quantization_config": {"quant_method": "fp8"}},
        "quantized",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_served_is_refused_before_weights_are_read(
    tmp_path: Path, kind: str
) -> None:
    config_type, architecture, fields, message = REFUSED[kind]
    config = saved(getattr(transformers, config_type)(**SHAPE | fields), tmp_path, architecture)
    with pytest.raises(UnsupportedModel, match=f"through transformers .*{message}"):
        build_model(config, torch.float32, CPU)


@pytest.mark.parametrize("kind", ["Pegasus", "LED"])
def test_other_encoder_decoders_are_refused_by_their_config(tmp_path: Path, kind: str) -> None:
    config = getattr(transformers, f"{kind}Config")(**SHAPE)
    with pytest.raises(UnsupportedModel, match=r"encoder-decoders; of such, .*Whisper"):
        saved(config, tmp_path, f"{kind}ForConditionalGeneration")


def test_a_model_without_positions_is_refused_by_its_config(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"MambaForCausalLM.* no max_position_embeddings"):
        saved(transformers.MambaConfig(vocab_size=97), tmp_path)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["NewForCausalLM"], "model_type": "new", "vocab_size": 97,'
        ' "max_position_embeddings": 64}'
    )
    with pytest.raises(
        (UnsupportedModel, BrokenCheckpoint), match="does not know this architecture"
    ):
        build_model(read_config(tmp_path), torch.float32, CPU)


def test_code_of_a_repository_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["NewForCausalLM"], "model_type": "new", "vocab_size": 97,'
        ' "max_position_embeddings": 64, "auto_map": {"AutoConfig": "new.NewConfig"}}'
    )
    (tmp_path / "new.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises((UnsupportedModel, BrokenCheckpoint)):
        build_model(read_config(tmp_path), torch.float32, CPU)
    assert not (tmp_path / "ran").exists()


def test_a_model_whose_tokens_depend_on_more_than_the_pool_fails_the_proof(tmp_path: Path) -> None:
    """BART's decoder calls attention correctly, but counts positions by its own cache."""
    fields: dict[str, Any] = {
        "d_model": 32,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 48,
        "is_encoder_decoder": False,
        "is_decoder": True,
    }
    Reference(tmp_path, config_type=transformers.BartConfig, **fields)
    with pytest.raises(UnsupportedModel, match="its logits differ between"):
        BareModel(tmp_path, impl="transformers")


def test_several_ranks_are_refused(tmp_path: Path) -> None:
    config = saved(GPTNeoXConfig(**SHAPE), tmp_path)
    with pytest.raises(UnsupportedModel, match="on one rank only; 2 were asked for"):
        build_model(config, torch.float32, CPU, ParallelGroup(rank=0, size=2))


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    saved(GPTNeoXConfig(**SHAPE), tmp_path)
    with pytest.raises(DoesNotFit):
        TorchModelRunner(WorkerSettings(model=str(tmp_path), memory_gib=1e-6))


def test_missing_and_unknown_tensors_are_named(tmp_path: Path) -> None:
    Reference(tmp_path, config_type=GPTNeoXConfig)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["embed_out.bias"] = tensors.pop("gpt_neox.layers.1.mlp.dense_h_to_4h.bias")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        BrokenCheckpoint, match=r"missing gpt_neox\.layers\.1\.mlp.*; unexpected lm_head\.bias$"
    ):
        load_weights(build_model(read_config(tmp_path), torch.float32, CPU), tmp_path, CPU)


def test_truncated_and_absent_weights_are_refused(tmp_path: Path) -> None:
    Reference(tmp_path, config_type=GPTNeoXConfig)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BrokenCheckpoint, match="transformers cannot load"):
        BareModel(tmp_path, impl="transformers")
    path.unlink()
    with pytest.raises(BrokenCheckpoint, match="only weights in safetensors format"):
        BareModel(tmp_path, impl="transformers")
