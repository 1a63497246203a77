"""`AdapterSlots`: which LoRA adapters are in device memory, and where.

Each adapter there has one slot and as many pages as its rank needs, any pages: small and large ones
share them without gaps. A slot and a page are in exactly one of three states:

    free        no adapter has it
    evictable   its adapter is idle: a further adapter may take its place, the one unused for
                longest first
    kept        its adapter is held, by a load or by requests, or pinned

so at any time free + evictable + kept = all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdapterPlace:
    slot: int
    pages: tuple[int, ...]


class AdapterSlots:
    def __init__(self, num_slots: int, num_pages: int) -> None:
        self.num_slots, self.num_pages = num_slots, num_pages
        self._free_slots = list(range(num_slots - 1, -1, -1))
        self._free_pages = list(range(num_pages - 1, -1, -1))
        self._places: dict[bytes, AdapterPlace] = {}
        self._holds: dict[bytes, int] = {}  # of those that have any
        self._pinned: dict[bytes, int] = {}  # how many pages each needs, also before it is here
        self._idle: dict[bytes, None] = {}  # evictable, the one unused for longest first

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._places

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._places)

    def place(self, identity: bytes) -> AdapterPlace:
        """Raises KeyError if the adapter is not here."""
        return self._places[identity]

    def is_held(self, identity: bytes) -> bool:
        return identity in self._holds

    def is_idle(self, identity: bytes) -> bool:
        return identity in self._idle

    def is_pinned(self, identity: bytes) -> bool:
        return identity in self._pinned

    # Numbers

    @property
    def free_slots(self) -> int:
        return len(self._free_slots)

    @property
    def evictable_slots(self) -> int:
        return len(self._idle)

    @property
    def free_pages(self) -> int:
        return len(self._free_pages)

    @property
    def evictable_pages(self) -> int:
        return sum(len(self._places[identity].pages) for identity in self._idle)

    def can_take(self, pages: int) -> bool:
        """Whether a slot and so many pages are free or evictable."""
        has_slot = bool(self._free_slots or self._idle)
        return has_slot and pages <= self.free_pages + self.evictable_pages

    def is_possible(self, pages: int) -> bool:
        """Whether an adapter of so many pages that is not pinned can get a place at some time."""
        return len(self._pinned) < self.num_slots and pages <= self._unpinned_pages

    @property
    def next_evicted(self) -> bytes | None:
        """The adapter that leaves first; None if none can."""
        return next(iter(self._idle), None)

    # Adapters come and go

    def evict(self, pages: int) -> list[bytes]:
        """Free a slot and so many pages, as far as adapters are idle; returns those that left."""
        evicted: list[bytes] = []
        while self._idle and (not self._free_slots or len(self._free_pages) < pages):
            evicted.append(next(iter(self._idle)))
            self.drop(evicted[-1])
        return evicted

    def take(self, identity: bytes, pages: int) -> AdapterPlace:
        """Give an adapter a free slot and free pages, and hold it once.

        Raises:
            MemoryError: too few are free. Callers evict first, so this is a bug.
        """
        assert identity not in self._places, "it has a place"
        if not self._free_slots or pages > len(self._free_pages):
            raise MemoryError(
                f"a slot with {pages} pages requested, {self.free_slots} slots and"
                f" {self.free_pages} pages are free"
            )
        taken = tuple(self._free_pages.pop() for _ in range(pages))
        place = self._places[identity] = AdapterPlace(self._free_slots.pop(), taken)
        self._holds[identity] = 1
        return place

    def drop(self, identity: bytes) -> None:
        """Free the place of an adapter, which nobody holds."""
        assert identity not in self._holds, "it is held"
        place = self._places.pop(identity)
        self._idle.pop(identity, None)
        self._free_slots.append(place.slot)
        self._free_pages += reversed(place.pages)

    def hold(self, identity: bytes) -> int:
        """Keep an adapter here until as many releases; returns its slot."""
        self._holds[identity] = self._holds.get(identity, 0) + 1
        self._idle.pop(identity, None)
        return self._places[identity].slot

    def release(self, identity: bytes) -> None:
        self._holds[identity] -= 1
        if not self._holds[identity]:
            del self._holds[identity]
            self._settle(identity)

    def pin(self, identity: bytes, pages: int) -> None:
        """Keep an adapter of so many pages here from now on, or from when it gets a place."""
        self._pinned[identity] = pages
        self._idle.pop(identity, None)

    def can_pin(self, pages: int, others: Iterable[int]) -> bool:
        """Whether an adapter of so many pages can be pinned, and each of the others, which are not
        pinned, still finds a place at some time."""
        slots = self.num_slots - len(self._pinned) - 1
        left = self._unpinned_pages - pages
        return slots >= 0 and left >= 0 and all(slots > 0 and other <= left for other in others)

    def unpin(self, identity: bytes) -> None:
        if self._pinned.pop(identity, None) is not None:
            self._settle(identity)

    @property
    def _unpinned_pages(self) -> int:
        return self.num_pages - sum(self._pinned.values())

    def _settle(self, identity: bytes) -> None:
        """Make an adapter evictable if nothing keeps it any more."""
        if identity in self._places and not (identity in self._holds or identity in self._pinned):
            self._idle[identity] = None
