"""Writes GGUF files from transformers' checkpoints, like llama.cpp's converter.

Keys and names are those of the `gguf` package. The converter's changes (pairs of rotary rows,
stacked experts, norms with 1 added) are made here.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import quantize
from safetensors.torch import load_file
from transformers import AutoConfig

ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MistralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MixtralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen3ForCausalLM": gguf.MODEL_ARCH.QWEN3,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "Phi3ForCausalLM": gguf.MODEL_ARCH.PHI3,
    "Olmo2ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "Gemma2ForCausalLM": gguf.MODEL_ARCH.GEMMA2,
    "Gemma3ForCausalLM": gguf.MODEL_ARCH.GEMMA3,
    "GptOssForCausalLM": gguf.MODEL_ARCH.GPT_OSS,
}

Tokenizer = Callable[[gguf.GGUFWriter], None]


def write_gguf(
    model_dir: Path,
    path: Path,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    tokenizer: "Tokenizer | None" = None,
    parts: int = 1,
    others: Mapping[str, gguf.GGMLQuantizationType] | None = None,
) -> Path:
    """The checkpoint of `model_dir` as a GGUF file; matrices whose rows allow it are of `kind`.

    Args:
        others: kinds of some tensors of each layer, by their names in the file
    """
    kinds = others or {}
    config = AutoConfig.from_pretrained(model_dir)
    arch = ARCHITECTURES[config.architectures[0]]
    per_part = 2 if parts > 1 else 0
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch], split_max_tensors=per_part)
    _write_config(writer, config)
    (tokenizer or _plain_tokenizer(config.vocab_size))(writer)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    experts: dict[str, dict[int, np.ndarray]] = defaultdict(dict)
    for name, tensor in _tensors(model_dir, config).items():
        if config.model_type == "gpt_oss" and ".experts." in name:
            for theirs, stacked in _gpt_oss_experts(name, tensor, names):
                _add(writer, theirs, stacked, kind)
            continue
        if name.endswith(".sinks"):
            name += ".weight"
        base, _, suffix = name.rpartition(".")
        values = _as_converted(name, tensor, config).numpy()
        if ".experts." in base:
            before, _, after = base.partition(".experts.")
            number, _, matrix = after.partition(".")
            stacked = names.get_name(f"{before}.experts.{matrix}")
            if stacked is None:
                stacked = names.get_name(f"{before}.experts.0.{matrix}")
            assert stacked is not None, name
            experts[f"{stacked}.{suffix}"][int(number)] = values
            continue
        theirs = names.get_name(base)
        assert theirs is not None, name
        _add(writer, f"{theirs}.{suffix}", values, kinds.get(theirs.rpartition(".")[2], kind))
    for name, ones in experts.items():
        _add(writer, name, np.stack([ones[i] for i in range(len(ones))]), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(
    writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: gguf.GGMLQuantizationType
) -> None:
    block = gguf.GGML_QUANT_SIZES[kind][0]
    if values.ndim == 1 or values.shape[-1] % block:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)


def _tensors(model_dir: Path, config: Any) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(model_dir.glob("*.safetensors")):
        tensors |= load_file(file)
    if config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    return tensors


def _gpt_oss_experts(name: str, tensor: torch.Tensor, names: Any) -> Any:
    """Splits tensors with inputs before outputs and interleaved gate and up into matrices."""
    before, _, after = name.partition(".experts.")
    suffix = "bias" if after.endswith("_bias") else "weight"
    parts = {"down_proj": tensor}
    if after.startswith("gate_up"):
        parts = {"gate_proj": tensor[..., ::2], "up_proj": tensor[..., 1::2]}
    for matrix, values in parts.items():
        turned = values if suffix == "bias" else values.mT
        stacked = names.get_name(f"{before}.experts.{matrix}")
        yield f"{stacked}.{suffix}", turned.float().contiguous().numpy()


def _as_converted(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    tensor = tensor.float()
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    layer = name.split(".")[-2]
    is_llama = config.model_type in ("llama", "mistral", "mixtral")
    if is_llama and layer in heads:  # halves to pairs
        halves = tensor.view(heads[layer], 2, -1, *tensor.shape[1:])
        return halves.transpose(1, 2).reshape(tensor.shape).contiguous()
    if config.model_type.startswith("gemma") and layer.endswith("norm"):
        return tensor + 1
    return tensor


def _write_config(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    rope = config.rope_parameters
    full = rope.get("full_attention", rope)
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_dimension_count(int(head_dim * full.get("partial_rotary_factor", 1.0)))
    match full["rope_type"]:
        case "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(full["factor"])
        case "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(full["factor"])
            writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
        case "longrope":
            writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
            for length in ("long", "short"):
                factors = np.array(full[f"{length}_factor"], np.float32)
                writer.add_tensor(f"rope_factors_{length}.weight", factors)
        case "llama3":
            writer.add_tensor("rope_freqs.weight", llama3_divisors(full, head_dim))
    if getattr(config, "sliding_window", None) and config.model_type != "qwen2":
        writer.add_sliding_window(config.sliding_window)
    for name, add in (
        ("num_local_experts", writer.add_expert_count),
        ("num_experts", writer.add_expert_count),
        ("num_experts_per_tok", writer.add_expert_used_count),
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
    ):
        if (value := getattr(config, name, None)) is not None:
            add(value)
    if config.model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)


def llama3_divisors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """Divisors of the frequencies, from transformers' own parameters."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        rope_parameters=rope,
        max_position_embeddings=rope["original_max_position_embeddings"] * 16,
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = rope["rope_theta"] ** -(torch.arange(0, head_dim, 2) / head_dim)
    divisors: np.ndarray = (plain / scaled).float().numpy()
    return divisors


def _plain_tokenizer(size: int) -> "Tokenizer":
    """A tokenizer of `size` meaningless tokens."""

    def write(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([chr(0x100 + number) for number in range(size)])
        writer.add_token_types([gguf.TokenType.NORMAL] * size)
        writer.add_token_merges([])
        writer.add_eos_token_id(2)

    return write
