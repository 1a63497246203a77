"""Llama: the decoder of `LlamaForCausalLM` checkpoints, for inference over a paged KV pool.

Modules and parameters have their checkpoint's names, but for the fused projections, whose `parts`
do. Where a row's earlier keys and values are is the attention backend's business.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.models.config import ModelConfig
from pando_worker.models.layers import FusedLinear, GatedMLP, RotaryEmbedding, Rotation


class LlamaAttention(nn.Module):
    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        self.layer = AttentionLayer(
            index=layer,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            v_head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
        )
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.qkv_proj = FusedLinear(
            config.hidden_size,
            {"q_proj": q_width, "k_proj": kv_width, "v_proj": kv_width},
            bias=config.attention_bias,
        )
        self.o_proj = nn.Linear(q_width, config.hidden_size, bias=config.attention_bias)

    def forward(self, x: Tensor, rotation: Rotation, attention: AttentionBackend) -> Tensor:
        qkv = self.qkv_proj(x).unflatten(-1, (-1, self.head_dim))
        qk, v = qkv.tensor_split([self.heads + self.kv_heads], dim=1)
        q, k = rotation.apply(qk).tensor_split([self.heads], dim=1)
        out: Tensor = self.o_proj(attention.forward(q, k, v, self.layer).flatten(1))
        return out


class LlamaLayer(nn.Module):
    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = LlamaAttention(config, layer)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)

    def forward(self, x: Tensor, rotation: Rotation, attention: AttentionBackend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, attention)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class LlamaModel(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # Given its weight, for drawing a first one would import torch's compiler: two seconds.
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        weight = torch.empty(vocab_size, hidden_size)
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size, _weight=weight)
        self.layers = nn.ModuleList(LlamaLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)


class LlamaForCausalLM(nn.Module):
    def __init__(self, config: ModelConfig, rotary: RotaryEmbedding) -> None:
        super().__init__()
        self.rotary = rotary
        self.model = LlamaModel(config)
        self.lm_head = (
            None
            if config.tie_word_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )

    @torch.inference_mode()
    def forward(self, input_ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        """Final hidden states, normalized, [num_tokens, hidden_size].

        Args:
            input_ids, positions: [num_tokens]
            attention: planned for this batch
        """
        rotation = self.rotary.rotation(positions)
        x: Tensor = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            x = layer(x, rotation, attention)
        out: Tensor = self.model.norm(x)
        return out

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Of those of the hidden states that are given, float32, [n, vocab_size]."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return functional.linear(hidden, head.weight).float()
