"""Attention sinks: a head may attend to its sink instead of any token (arXiv:2309.17453,
GPT-OSS)."""

from collections.abc import Iterator

from torch import nn

from pando_worker.models.build import Build, Fill


class Sinks(nn.Module):
    """One score per head that joins the softmax beside the keys' scores and has no value.

    Args:
        heads: number of heads of the layer
        mine: this rank's heads

    Attributes:
        scores: [this rank's heads]
    """

    def __init__(self, build: Build, heads: int, mine: range) -> None:
        super().__init__()
        self.scores = build.parameter(len(mine))
        self._heads = heads
        self._mine = mine

    def fills(self) -> Iterator[Fill]:
        part = slice(self._mine.start, self._mine.stop)
        yield Fill("sinks", (self._heads,), (part,), self.scores)
