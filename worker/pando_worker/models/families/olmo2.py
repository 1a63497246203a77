"""OLMo 2 (`Olmo2ForCausalLM`): norms after both halves of a layer and on queries and keys."""

from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend
from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig
from pando_worker.models.layers.attention.multi_head import Attention, Rotations, head_rows
from pando_worker.models.layers.attention.rotary import RotaryEmbedding
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.layers.norms.heads import HeadsRMSNorm
from pando_worker.models.layers.norms.rms import RMSNorm
from pando_worker.models.rope import Positive


class Config(DecoderConfig, frozen=True, kw_only=True):
    rms_norm_eps: Positive = 1e-5
    attention_bias: bool = False


class Olmo2Block(nn.Module):
    """Each half normalises its output, before adding it to the residual stream, not its input."""

    def __init__(self, config: Config, build: Build, index: int) -> None:
        super().__init__()
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        q_rows, kv_rows = head_rows(build, heads, kv_heads, config.head_dim)
        self.self_attn = Attention(
            build,
            index,
            hidden_size=config.hidden_size,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            out_bias=config.attention_bias,
            q_norm=HeadsRMSNorm(build, "q_norm", q_rows, config.rms_norm_eps),
            k_norm=HeadsRMSNorm(build, "k_norm", kv_rows, config.rms_norm_eps),
        )
        self.post_attention_layernorm = RMSNorm(build, config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(build, config.hidden_size, config.intermediate_size)
        self.post_feedforward_layernorm = RMSNorm(build, config.hidden_size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, added: None, rotations: Rotations, attention: AttentionBackend
    ) -> tuple[Tensor, None]:
        x = x + self.post_attention_layernorm(self.self_attn(x, rotations, attention))
        return x + self.post_feedforward_layernorm(self.mlp(x)), None


def build(config: Config, build: Build) -> CausalLM:
    return CausalLM(
        build,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        layers=[Olmo2Block(config, build, index) for index in range(config.num_hidden_layers)],
        norm=RMSNorm(build, config.hidden_size, config.rms_norm_eps),
        rotaries=[RotaryEmbedding(build, config.rope, config.head_dim)],
        tied=config.tie_word_embeddings,
    )
