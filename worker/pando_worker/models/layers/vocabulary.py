"""Embedding and output head: tables with one row per token; each rank holds a range of the rows."""

from collections.abc import Iterator

from torch import Tensor, nn

from pando_worker.adapters.layout import Span
from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.lora_vocabulary import TableSite, adapt_embeddings, adapt_logits
from pando_worker.models.layers.weight import PlainWeight, Table


class VocabularyTable(nn.Module):
    """The embedding or the head; some models share one table for both.

    Any vocabulary can be split: if necessary the last rank has padding rows without a token.

    Args:
        name: in the checkpoint

    Attributes:
        embedding_lora, head_lora: where the adapters of each use are; None if the model has none,
            or does not use the table so
    """

    def __init__(self, build: Build, name: str, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self._group = build.group
        rows = -(-vocab_size // self._group.size)
        self.weight: Table = PlainWeight(build, rows, hidden_size)
        self._name = name
        self._vocab_size = vocab_size
        self._first = rows * self._group.rank
        self._ops = build.ops
        self.embedding_lora: TableSite | None = None
        self.head_lora: TableSite | None = None

    def forward(self, ids: Tensor) -> Tensor:
        """Embeddings [num_tokens, hidden_size] of ids [num_tokens]."""
        if self._group.size == 1:
            return self._rows(ids)
        ids = ids - self._first
        elsewhere = (ids < 0) | (ids >= self.weight.outputs)
        x = self._rows(ids.masked_fill_(elsewhere, 0))
        return self._group.all_reduce(x.masked_fill_(elsewhere[:, None], 0.0))

    def _rows(self, ids: Tensor) -> Tensor:
        x = self.weight.rows(ids)
        site = self.embedding_lora
        step = None if site is None else site.memory.step
        if site is not None and step is not None and not step.linear_alone:
            adapt_embeddings(x, ids, site, step)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """[n, hidden_size] to float32 [n, vocab_size] on rank 0, where tokens are sampled; others
        compute their tokens' logits for it, and get [n, 0]."""
        own = self.weight.product(x, None)
        if (site := self.head_lora) is not None and (rows := site.memory.heads) is not None:
            adapt_logits(own, x, site, rows, self._ops)
        return self._group.to_first(own)[:, : self._vocab_size].float()

    @property
    def shape(self) -> tuple[int, int]:
        """Of the whole table."""
        return self._vocab_size, self.weight.inputs

    @property
    def taken(self) -> Span:
        """This rank's tokens."""
        first = min(self._first, self._vocab_size)
        return first, min(self._first + self.weight.outputs, self._vocab_size)

    def fills(self) -> Iterator[Fill]:
        hidden_size = self.weight.inputs
        first, last = self.taken
        part = (slice(first, last), slice(0, hidden_size))
        shape = (self._vocab_size, hidden_size)
        yield Fill(f"{self._name}.weight", shape, part, self.weight.part(slice(0, last - first)))
