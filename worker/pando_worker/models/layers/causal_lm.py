"""`CausalLM`: the parts that all decoders share, around the layers of a family.

Modules and parameters have the checkpoint's names, except those that map them with `fills`. Only
the attention backend knows where a row's earlier keys and values are.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.models.build import Build
from pando_worker.models.layers.attention.latent import LatentAttention
from pando_worker.models.layers.attention.multi_head import Attention
from pando_worker.models.layers.attention.rotary import RotaryEmbedding
from pando_worker.models.layers.linear import ColumnParallelLinear, Rows
from pando_worker.models.layers.norms.rms import RMSNorm
from pando_worker.models.layers.vocabulary import VocabularyTable


class Inserted(NamedTuple):
    """What a vision tower has made for some tokens.

    Attributes:
        tokens: which of the step's, int64 [n]
        rows: their embeddings, [n, hidden_size], as the decoder's first layer takes them
        deeper: added behind each of the first layers, [n, hidden_size] (DeepStack,
            arXiv:2406.04334)
    """

    tokens: Tensor
    rows: Tensor
    deeper: tuple[Tensor, ...] = ()


class Decoder(nn.Module):
    def __init__(
        self, embed_tokens: VocabularyTable, layers: Sequence[nn.Module], norm: RMSNorm
    ) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.layers = nn.ModuleList(layers)
        self.norm = norm


class CausalLM(nn.Module):
    """A decoder for inference over a paged KV pool.

    Args:
        layers: as in block.py; their attention layers have the indices 0, 1, ... in this order
        rotaries: one for each kind of rotary positions of the layers
        tied: whether the embedding is also the head
        embedding_scale: factor on the embeddings, rounded to the model's dtype
        logit_soft_cap: logits become cap * tanh(logit / cap)
        unused: beginnings of names of tensors that checkpoints have and this model does not need

    Attributes:
        hidden_size: of the hidden states
    """

    def __init__(
        self,
        build: Build,
        *,
        vocab_size: int,
        hidden_size: int,
        layers: Sequence[nn.Module],
        norm: RMSNorm,
        rotaries: Sequence[RotaryEmbedding],
        tied: bool,
        embedding_scale: float = 1.0,
        logit_soft_cap: float | None = None,
        unused: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.unused = unused
        embed_tokens = VocabularyTable(build, "embed_tokens", vocab_size, hidden_size)
        self.model = Decoder(embed_tokens, layers, norm)
        self.lm_head = (
            VocabularyTable(build, "lm_head", vocab_size, hidden_size)
            if build.has_head and not tied
            else None
        )
        self._tied = build.has_head and tied
        self._dtype = build.dtype
        self.classifier: ColumnParallelLinear | None = None
        if build.labels:  # whole on every rank
            rows = Rows(build.labels, range(build.labels))
            self.classifier = ColumnParallelLinear(build, hidden_size, {"score": rows}, bias=False)
        self._rotaries = rotaries
        # Rounded like the embeddings: Gemma was trained with a scale in bfloat16.
        rounded = torch.tensor(embedding_scale, dtype=build.dtype, device="cpu")
        self._embedding_scale = rounded.item()
        self._logit_soft_cap = logit_soft_cap

    @property
    def head(self) -> VocabularyTable | None:
        """The table that serves as the head; None in a model that yields hidden states only."""
        return self.model.embed_tokens if self._tied else self.lm_head

    @property
    def attention_layers(self) -> list[AttentionLayer]:
        """This rank's attention layers, for which the KV pool and the backend are created."""
        kinds = (Attention, LatentAttention)
        return [module.layer for module in self.modules() if isinstance(module, kinds)]

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        attention: AttentionBackend,
        images: Inserted | None = None,
    ) -> Tensor:
        """Final hidden states, normalized, [num_tokens, hidden_size].

        Args:
            input_ids: [num_tokens]
            positions: [num_tokens]; with M-RoPE also [3, num_tokens] for time, height and width
            attention: planned for this batch
            images: embeddings of the step's image tokens
        """
        rotations = tuple(rotary.rotation(positions) for rotary in self._rotaries)
        x: Tensor = self.model.embed_tokens(input_ids)
        if self._embedding_scale != 1.0:
            x = x * self._embedding_scale
        if images is not None:
            x = x.index_copy(0, images.tokens, images.rows)
        added: Tensor | None = None
        for index, layer in enumerate(self.model.layers):
            x, added = layer(x, added, rotations, attention)
            if images is not None and index < len(images.deeper):
                x = x.index_add(0, images.tokens, images.deeper[index])
        _, out = self.model.norm.after_sum(x, added)
        return out

    @torch.inference_mode()
    def classify(self, pooled: Tensor) -> Tensor:
        """Pooled states, float32 [n, hidden_size], to a classifier's logits, float32 [n,
        labels]; pooled states unchanged without a classifier."""
        if self.classifier is None:
            return pooled
        scores: Tensor = self.classifier(pooled.to(self._dtype))
        return scores.float()

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of final hidden states [n, hidden_size]: float32 [n, vocab_size], on other
        ranks than the first [n, 0].

        Without a head, the embedding is used: the logits are meaningless and serve trial runs only.
        """
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        logits = head.logits(hidden)
        if self._logit_soft_cap is not None:
            logits = logits.div_(self._logit_soft_cap).tanh_().mul_(self._logit_soft_cap)
        return logits
