"""Pieces of memory, and the order of their uses."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


class CudaError(RuntimeError):
    """What CUDA, or a checker of races, would complain about."""


Clock = dict["Actor", int]
"""How much of each actor's work has certainly ended."""


class Actor:
    """A thread or a stream: what runs one thing after another.

    Attributes:
        seen: the work, its own included, that comes before what it does next
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: Clock = {self: 0}

    def tick(self) -> None:
        self.seen[self] += 1

    @property
    def time(self) -> int:
        return self.seen[self]

    def after(self, clock: Clock) -> None:
        """What it does next comes after all of this."""
        for actor, time in clock.items():
            if self.seen.get(actor, -1) < time:
                self.seen[actor] = time


@dataclass(frozen=True, slots=True)
class Use:
    """Of bytes from `first` to before `end`."""

    first: int
    end: int
    actor: Actor
    time: int
    what: str


@dataclass(eq=False)
class Block:
    """An allocation. It lives as long as a tensor of the program refers to it.

    Attributes:
        gpu: None for pinned memory of the host
        owner: the stream that it was allocated on, which may use it again once it is freed
    """

    name: str
    nbytes: int
    gpu: int | None
    owner: Actor | None = None
    on_free: "Callable[[Block], None] | None" = None
    writes: list[Use] = field(default_factory=list)
    reads: list[Use] = field(default_factory=list)

    def __del__(self) -> None:
        if self.on_free is not None:
            self.on_free(self)

    def use(self, first: int, end: int, actor: Actor, what: str, *, writes: bool) -> None:
        """
        Raises:
            CudaError: nothing orders this use behind an earlier one.
        """
        if first >= end:
            return
        seen = actor.seen
        for earlier in (*self.writes, *self.reads) if writes else self.writes:
            overlaps = earlier.first < end and first < earlier.end
            if overlaps and seen.get(earlier.actor, -1) < earlier.time:
                kind = "writes" if writes else "reads"
                raise CudaError(
                    f"{actor.name} {kind} {self.name} ({what}) while {earlier.actor.name} may"
                    f" still use it ({earlier.what})"
                )
        use = Use(first, end, actor, actor.time, what)
        self.reads = [
            old
            for old in self.reads
            if not (first <= old.first and old.end <= end and (writes or old.actor is actor))
        ]
        if writes:
            self.writes = [u for u in self.writes if not (first <= u.first and u.end <= end)]
            self.writes.append(use)
        else:
            self.reads.append(use)

    def unfinished(self, seen: Clock, except_for: Actor | None = None) -> Use | None:
        """A use that may go on after all that is `seen`."""
        return next(
            (
                use
                for use in (*self.writes, *self.reads)
                if use.actor is not except_for and seen.get(use.actor, -1) < use.time
            ),
            None,
        )


def bytes_of(tensor: Tensor) -> tuple[int, int]:
    """The first byte of its storage that a tensor may have, and the one behind its last."""
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return first, first
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (int(last) + 1) * size
