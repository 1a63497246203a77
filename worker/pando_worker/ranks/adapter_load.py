"""What rank 0 sends to another rank beside batches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pando_worker.models.lora.linear import PackedSection


class Frame(Protocol):
    """A part of what a socket received."""

    @property
    def buffer(self) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class AdapterLoad:
    """Rank 0's order to put an adapter into a slot. The numbers of this rank's share, a page after
    the other, are the message's second part."""

    slot: int
    pages: tuple[int, ...]
    sections: "tuple[PackedSection, ...]"
