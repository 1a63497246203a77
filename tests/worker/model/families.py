"""The families with a file of their own: a tiny config of each, one line per case.

Add a family here, and every test of `test_families.py` and `test_tensor_parallel.py` runs on it.
Windows and original contexts are shorter than the tests' prompts, so that they count.
"""

from dataclasses import dataclass, field
from typing import Any

from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

_SPECIAL_TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LONG_ROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.1, 1.2],
    "long_factor": [1.0, 2.0, 4.0],
    "partial_rotary_factor": 0.75,
}

_EXPERTS: dict[str, Any] = {
    "head_dim": 8,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
}
# Of eight experts in four groups.
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "rope_theta": 100.0,
    "original_max_position_embeddings": 16,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}


@dataclass(frozen=True)
class Case:
    config_type: Any
    fields: dict[str, Any] = field(default_factory=dict)  # in addition to those of `SHAPE`
    context_length: int | None = None  # longest sequence served, the model's by default
    # transformers gets at least this many tokens, padded with meaningless ones: it chooses
    # LongRoPE's
    # factors by the length of each sequence, the worker by the longest that it serves.
    at_least: int = 0


FAMILIES = {
    "llama": Case(LlamaConfig),
    "llama, biases, tied": Case(
        LlamaConfig, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "mistral": Case(MistralConfig, {"sliding_window": None, "head_dim": 16}),
    "mistral, window": Case(MistralConfig, {"sliding_window": 7}),
    "qwen2": Case(Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2, windows": Case(
        Qwen2Config, {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
    ),
    "qwen3": Case(Qwen3Config, {"head_dim": 16}),
    "qwen3, windows": Case(
        Qwen3Config,
        {
            "head_dim": 8,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "phi3": Case(Phi3Config, _SPECIAL_TOKENS | {"sliding_window": 9}),
    "phi3, short context": Case(
        Phi3Config,
        _SPECIAL_TOKENS | {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 64},
        context_length=64,
    ),
    "phi3, long context": Case(
        Phi3Config,
        _SPECIAL_TOKENS | {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 16},
        at_least=17,
    ),
    "olmo2": Case(Olmo2Config, {"attention_bias": True}),
    "mixtral": Case(MixtralConfig, {"num_local_experts": 5, "sliding_window": 11}),
    "qwen3-moe": Case(Qwen3MoeConfig, _EXPERTS | {"norm_topk_prob": True}),
    "qwen3-moe, some layers": Case(
        Qwen3MoeConfig,
        _EXPERTS | {"num_hidden_layers": 3, "decoder_sparse_step": 2, "attention_bias": True},
    ),
    "gemma2": Case(
        Gemma2Config,
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 6,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Case(
        Gemma3TextConfig,
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
    "deepseek-v2": Case(DeepseekV2Config, _LATENT | {"q_lora_rank": None}),
    "deepseek-v2, groups": Case(
        DeepseekV2Config,
        _LATENT
        | {
            "q_lora_rank": 12,
            "n_shared_experts": 1,
            "topk_method": "group_limited_greedy",
            "rope_parameters": _YARN,
        },
    ),
    "deepseek-v3": Case(DeepseekV3Config, _LATENT | {"q_lora_rank": 12, "rope_parameters": _YARN}),
    "deepseek-v3, halves": Case(
        DeepseekV3Config,
        _LATENT | {"q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False},
    ),
    "gpt-oss": Case(
        GptOssConfig,
        {
            "head_dim": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 6,
            "swiglu_limit": 0.8,
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 100.0,
                "original_max_position_embeddings": 16,
                "truncate": False,
            },
        },
    ),
}
