"""What adapters add to the embedding and the head, or put in their place.

With torch's operators, one adapter after the other; steps in which this happens are not recorded.
"""

from dataclasses import dataclass

from torch import Tensor

from pando_worker.models.lora.linear import LoraMemory, LoraSite, LoraTokens
from pando_worker.models.ops import Ops


@dataclass(frozen=True, slots=True)
class TableSite:
    """Where the adapters of the embedding or of the head are.

    Attributes:
        lora: of the section for two matrices
        whole: index of the section for a whole table, [this rank's tokens, hidden size]
    """

    lora: LoraSite
    whole: int

    @property
    def memory(self) -> LoraMemory:
        return self.lora.memory


def adapt_embeddings(x: Tensor, ids: Tensor, site: TableSite, step: LoraTokens) -> None:
    """Change x, the embeddings [num_tokens, hidden_size] of the tokens `ids`, which are counted
    from this rank's first."""
    memory, [section] = site.memory, site.lora.sections
    for slot, first, end in step.host_runs:
        tokens = step.tokens[first:end]
        own = ids[tokens]
        if (whole := memory.held(slot, site.whole)).rank:
            x[tokens] = memory.rows(slot, whole.a, section.width, own).to(x.dtype)
        if (held := memory.held(slot, site.lora.first)).rank:
            a = memory.rows(slot, held.a, held.rank, own).to(x.dtype)
            b = memory.matrix(slot, held.b, held.rank, section.width).to(x.dtype)
            x.index_add_(0, tokens, (a * held.scale) @ b)


def adapt_logits(y: Tensor, x: Tensor, site: TableSite, rows: LoraTokens, ops: Ops) -> None:
    """Change y, this rank's logits [n, tokens] of hidden states x, [n, hidden_size]."""
    memory, [section] = site.memory, site.lora.sections
    for slot, first, end in rows.host_runs:
        if not (whole := memory.held(slot, site.whole)).rank:
            continue
        tokens = rows.tokens[first:end]
        inputs = x[tokens]
        for row, part in memory.parts(slot, whole.a, section.width, section.depth):
            y[tokens, row : row + len(part)] = inputs @ part.to(x.dtype).T
    ops.add_lora(y, x, site.lora, rows)
