"""A GGUF architecture in the terms of `config.json` and of our families' tensors.

To add one, write its `Architecture` and register it in ARCHITECTURES. The keys and the tensors'
names are those of llama.cpp's `constants.py`; how tensors were changed on their way into the file
is in its `convert_hf_to_gguf.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.gguf.metadata import Metadata
from pando_worker.models.loading.gguf.rope import rope_fields

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Architecture:
    """
    Attributes:
        name: of the class in transformers
        fields: of `config.json`, beside those that all have
        layer: tensors of a layer, `blk.N.` without its number: their names after `model.layers.N.`
        experts: stacked tensors of all experts; `{}` is the expert's number
        without_kind: as `layer`, but not followed by "weight"
        permuted: rows of queries and keys are in pairs (GPT-J's rotary order), not in halves
        norm_offset: norms are stored with 1 added
        stacked_by_input: experts as in `gpt_oss.py`
    """

    name: str
    fields: Callable[[Metadata], Fields]
    layer: Mapping[str, str]
    experts: Mapping[str, str] = field(default_factory=dict)
    without_kind: Mapping[str, str] = field(default_factory=dict)
    permuted: bool = False
    norm_offset: bool = False
    stacked_by_input: bool = False


TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
"""Tensors outside the layers."""

IGNORED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that `config.json` tells of."""

_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_PRE_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_SANDWICH_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LLAMA = _ATTENTION | _MLP | _PRE_NORMS


def architecture(metadata: Metadata) -> Architecture:
    """Raises UnsupportedModel for one that is not read."""
    name = metadata.architecture
    if name == "llama" and metadata.get("expert_count", int):
        return MIXTRAL
    if name == "llama" and metadata.get("attention.sliding_window", int):
        return MISTRAL
    if name not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{metadata.path} is of the GGUF architecture {name!r}; supported:"
            f" {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def config_fields(metadata: Metadata) -> Fields:
    """What its `config.json` would have.

    Raises:
        BrokenCheckpoint: missing or malformed metadata.
        UnsupportedModel: an architecture, or something of it, that is not read.
    """
    found = architecture(metadata)
    hidden, heads = (
        metadata.count("embedding_length"),
        metadata.count("attention.head_count"),
    )
    head_dim = _head_dim(metadata)
    embeddings = metadata.tensors.get("token_embd.weight")
    vocabulary = len(metadata.strings("tokenizer.ggml.tokens"))
    return {
        "architectures": [found.name],
        "hidden_size": hidden,
        "intermediate_size": metadata.get("feed_forward_length", int),
        "num_hidden_layers": metadata.need("block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.get("attention.head_count_kv", int) or heads,
        "head_dim": head_dim,
        "max_position_embeddings": metadata.need("context_length", int),
        "rms_norm_eps": metadata.need("attention.layer_norm_rms_epsilon", float),
        "vocab_size": embeddings.shape[0] if embeddings else vocabulary,
        "tie_word_embeddings": "output.weight" not in metadata.tensors,
        "torch_dtype": _dtype(metadata),
        **rope_fields(metadata, head_dim),
        **found.fields(metadata),
    }


def _head_dim(metadata: Metadata) -> int:
    """Of which the rotary dimensions may be a part, as in Phi-3."""
    if metadata.get("attention.key_length", int) is not None:
        return metadata.count("attention.key_length")
    hidden, heads = metadata.count("embedding_length"), metadata.count("attention.head_count")
    if hidden < heads:
        raise BrokenCheckpoint(f"{metadata.path} has {heads} heads in {hidden} dimensions")
    return hidden // heads


def _dtype(metadata: Metadata) -> str:
    kinds = {place.type.name for place in metadata.tensors.values() if len(place.shape) > 1}
    one = {"F32": "float32", "F16": "float16"}
    return one.get(kinds.pop(), "bfloat16") if len(kinds) == 1 else "bfloat16"


def _has(metadata: Metadata, tensor: str) -> bool:
    return f"blk.0.{tensor}" in metadata.tensors


def _llama(metadata: Metadata) -> Fields:
    return {
        "attention_bias": _has(metadata, "attn_q.bias"),
        "mlp_bias": _has(metadata, "ffn_up.bias"),
    }


def _mistral(metadata: Metadata) -> Fields:
    return {"sliding_window": metadata.get("attention.sliding_window", int)}


def _mixtral(metadata: Metadata) -> Fields:
    return _mistral(metadata) | {
        "num_local_experts": metadata.need("expert_count", int),
        "num_experts_per_tok": metadata.need("expert_used_count", int),
    }


def _qwen2(_: Metadata) -> Fields:
    return {"use_sliding_window": False}


def _qwen3_moe(metadata: Metadata) -> Fields:
    return {
        "num_experts": metadata.need("expert_count", int),
        "num_experts_per_tok": metadata.need("expert_used_count", int),
        "moe_intermediate_size": metadata.need("expert_feed_forward_length", int),
        "norm_topk_prob": True,  # what llama.cpp computes
    }


def _phi3(metadata: Metadata) -> Fields:
    rotary = metadata.get("rope.dimension_count", int) or _head_dim(metadata)
    original = metadata.get("rope.scaling.original_context_length", int)
    return {
        "partial_rotary_factor": rotary / _head_dim(metadata),
        "sliding_window": metadata.get("attention.sliding_window", int) or None,
        **({"original_max_position_embeddings": original} if original else {}),
    }


def _olmo2(metadata: Metadata) -> Fields:
    return {"attention_bias": _has(metadata, "attn_q.bias")}


def _gemma(metadata: Metadata, largest: int) -> Fields:
    """`largest` is the number of layers of the family's largest model, which alone scales by other
    than the head's size; no key says so (llama.cpp decides it in the same way)."""
    hidden, heads = (
        metadata.count("embedding_length"),
        metadata.count("attention.head_count"),
    )
    is_largest = metadata.need("block_count", int) == largest
    return {
        "query_pre_attn_scalar": hidden // heads if is_largest else _head_dim(metadata),
        "sliding_window": metadata.need("attention.sliding_window", int),
        "final_logit_softcapping": metadata.get("final_logit_softcapping", float),
        "attn_logit_softcapping": metadata.get("attn_logit_softcapping", float),
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _gemma2(metadata: Metadata) -> Fields:
    return _gemma(metadata, largest=46)


def _gemma3(metadata: Metadata) -> Fields:
    local = metadata.get("rope.freq_base_swa", float)
    return _gemma(metadata, largest=62) | {
        "rope_local_base_freq": local or 10_000.0,
        "sliding_window_pattern": metadata.get("attention.sliding_window_pattern", int) or 6,
    }


def _gpt_oss(metadata: Metadata) -> Fields:
    scaling = rope_fields(metadata, _head_dim(metadata)).get("rope_scaling", {})
    return {
        "num_local_experts": metadata.need("expert_count", int),
        "num_experts_per_tok": metadata.need("expert_used_count", int),
        "intermediate_size": metadata.need("expert_feed_forward_length", int),
        "sliding_window": metadata.need("attention.sliding_window", int),
        "rope_scaling": scaling | {"truncate": False},
    }


MISTRAL = Architecture("MistralForCausalLM", _mistral, _LLAMA, permuted=True)
MIXTRAL = Architecture(
    "MixtralForCausalLM",
    _mixtral,
    _ATTENTION | _PRE_NORMS | {"ffn_gate_inp": "block_sparse_moe.gate"},
    experts={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    },
    permuted=True,
)

ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", _llama, _LLAMA, permuted=True),
    "qwen2": Architecture("Qwen2ForCausalLM", _qwen2, _LLAMA),
    "qwen3": Architecture("Qwen3ForCausalLM", _qwen2, _LLAMA | _HEAD_NORMS),
    "qwen3moe": Architecture(
        "Qwen3MoeForCausalLM",
        _qwen3_moe,
        _ATTENTION | _PRE_NORMS | _HEAD_NORMS | {"ffn_gate_inp": "mlp.gate"},
        experts={
            "ffn_gate_exps": "mlp.experts.{}.gate_proj",
            "ffn_down_exps": "mlp.experts.{}.down_proj",
            "ffn_up_exps": "mlp.experts.{}.up_proj",
        },
    ),
    "phi3": Architecture(
        "Phi3ForCausalLM",
        _phi3,
        {
            "attn_qkv": "self_attn.qkv_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.gate_up_proj",
            "ffn_down": "mlp.down_proj",
            **_PRE_NORMS,
        },
    ),
    "olmo2": Architecture(
        "Olmo2ForCausalLM",
        _olmo2,
        {
            **_ATTENTION,
            **_MLP,
            **_HEAD_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
    ),
    "gemma2": Architecture(
        "Gemma2ForCausalLM", _gemma2, _ATTENTION | _MLP | _SANDWICH_NORMS, norm_offset=True
    ),
    "gemma3": Architecture(
        "Gemma3ForCausalLM",
        _gemma3,
        _ATTENTION | _MLP | _SANDWICH_NORMS | _HEAD_NORMS,
        norm_offset=True,
    ),
    "gpt-oss": Architecture(
        "GptOssForCausalLM",
        _gpt_oss,
        {
            **_ATTENTION,
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_attention_layernorm",
            "ffn_gate_inp": "mlp.router",
        },
        without_kind={"attn_sinks": "self_attn.sinks"},
        stacked_by_input=True,
    ),
}
"""By the name that a file has. One architecture of GGUF, `llama`, is three families of ours."""
