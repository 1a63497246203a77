"""Embedding and output head: tables with one row per token; each rank holds a range of the rows."""

from collections.abc import Iterator

from torch import Tensor, nn

from pando_worker.models.build import Build, Fill
from pando_worker.models.layers.weight import PlainWeight, Table


class VocabularyTable(nn.Module):
    """The embedding or the head; some models share one table for both.

    Any vocabulary can be split: if necessary the last rank has padding rows without a token.

    Args:
        name: in the checkpoint
    """

    def __init__(self, build: Build, name: str, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self._group = build.group
        rows = -(-vocab_size // self._group.size)
        self.weight: Table = PlainWeight(build, rows, hidden_size)
        self._name = name
        self._vocab_size = vocab_size
        self._first = rows * self._group.rank

    def forward(self, ids: Tensor) -> Tensor:
        """Embeddings [num_tokens, hidden_size] of ids [num_tokens]."""
        if self._group.size == 1:
            return self.weight.rows(ids)
        ids = ids - self._first
        elsewhere = (ids < 0) | (ids >= self.weight.outputs)
        x = self.weight.rows(ids.masked_fill_(elsewhere, 0))
        return self._group.all_reduce(x.masked_fill_(elsewhere[:, None], 0.0))

    def logits(self, x: Tensor) -> Tensor:
        """[n, hidden_size] to float32 [n, vocab_size], the same on every rank."""
        logits = self._group.all_gather(self.weight.product(x, None))
        return logits[:, : self._vocab_size].float()

    def fills(self) -> Iterator[Fill]:
        hidden_size = self.weight.inputs
        first = min(self._first, self._vocab_size)
        last = min(self._first + self.weight.outputs, self._vocab_size)
        part = (slice(first, last), slice(0, hidden_size))
        shape = (self._vocab_size, hidden_size)
        yield Fill(f"{self._name}.weight", shape, part, self.weight.part(slice(0, last - first)))
