"""`ParallelGroup`: the ranks that compute one model together, each a share of every layer.

The group is passed as an argument; a group of one does nothing. Layers are split as in Megatron-LM
(arXiv:1909.08053): the first projection of a pair by outputs, the second by inputs, so each pair
needs one sum over all ranks.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pando_worker.models.errors import UnsupportedModel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParallelGroup:
    """Every rank makes the same calls in the same order; each call waits for all ranks."""

    rank: int = 0
    size: int = 1
    process_group: dist.ProcessGroup | None = None  # None for a single rank

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(x, group=self.process_group)
        return x

    def to_first(self, x: Tensor) -> Tensor:
        """The ranks' [n, width] concatenated to [n, size * width] on rank 0; [n, 0] on others."""
        if self.size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.size if self.rank == 0 else 0)]
        dist.gather(x.contiguous(), parts or None, dst=0, group=self.process_group)
        return torch.cat(parts, dim=1) if parts else x.new_empty(len(x), 0)

    def broadcast(self, x: Tensor) -> Tensor:
        """Rank 0's `x`, in place on the others."""
        if self.size > 1:
            dist.broadcast(x, src=0, group=self.process_group)
        return x

    def smallest(self, number: int) -> int:
        """The smallest of the ranks' numbers."""
        return min(self.gather(number))

    def gather(self, thing: T) -> list[T]:
        """Every rank's thing, which can be pickled, in the order of the ranks."""
        if self.size == 1:
            return [thing]
        things: list[T] = [thing] * self.size
        dist.all_gather_object(things, thing, group=self.process_group)
        return things

    def share(self, count: int, what: str) -> range:
        """This rank's share of `count` things, called `what` in errors.

        Raises:
            UnsupportedModel: they cannot be split evenly.
        """
        if count % self.size:
            raise UnsupportedModel(f"{count} {what} cannot be split evenly among {self.size} ranks")
        each = count // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def share_or_repeat(self, count: int, what: str) -> range:
        """Like `share`; with fewer things than ranks, neighbouring ranks have the same one."""
        if count < self.size and self.size % count == 0:
            one = self.rank * count // self.size
            return range(one, one + 1)
        return self.share(count, what)


def join_group(
    rank: int, size: int, rendezvous: str, device: torch.device, timeout: timedelta
) -> ParallelGroup:
    """Join the other ranks, with NCCL between GPUs and gloo between CPUs. Call once per process.

    Args:
        rendezvous: a URL for torch.distributed, the same on all ranks: tcp://host:port of rank 0,
            or file:///path of a file that does not exist yet
        timeout: for joining and for each later call

    Raises:
        torch.distributed.DistError: not all ranks joined in time. Later calls raise RuntimeError
            if a rank died.
    """
    if size == 1:
        return ParallelGroup()
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=rendezvous, rank=rank, world_size=size, timeout=timeout
    )
    return ParallelGroup(rank, size, dist.group.WORLD)
