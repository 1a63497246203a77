"""Slots and rank pages have one owner each, and the adapter unused for longest leaves first."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_worker.memory.adapter_slots import AdapterSlots
from tests.examples import examples

NAMES = [b"a", b"b", b"c", b"d", b"e"]


@dataclass
class Kept:
    """An adapter in the model: what has it, and since when nothing does."""

    pages: int
    holds: int = 1
    idle_since: int | None = None


@dataclass
class BruteForce:
    """Slots and pages as plain counts, and every adapter looked at each time."""

    slots: int
    pages: int
    here: dict[bytes, Kept] = field(default_factory=dict)
    pinned: dict[bytes, int] = field(default_factory=dict)
    now: int = 0

    def idle(self) -> list[bytes]:
        """The one unused for longest first."""
        found = [
            (kept.idle_since, name)
            for name, kept in self.here.items()
            if not kept.holds and name not in self.pinned and kept.idle_since is not None
        ]
        return [name for _, name in sorted(found)]

    @property
    def free(self) -> tuple[int, int]:
        taken = sum(kept.pages for kept in self.here.values())
        return self.slots - len(self.here), self.pages - taken

    def settle(self, name: bytes) -> None:
        self.now += 1
        if (kept := self.here.get(name)) and not kept.holds and name not in self.pinned:
            kept.idle_since = self.now

    def evict(self, pages: int) -> list[bytes]:
        evicted = []
        for name in self.idle():
            if self.free[0] >= 1 and self.free[1] >= pages:
                break
            del self.here[name]
            evicted.append(name)
        return evicted


class SlotsMachine(RuleBasedStateMachine):
    @initialize(slots=st.integers(1, 4), pages=st.integers(4, 8))
    def start(self, slots: int, pages: int) -> None:
        self.slots = AdapterSlots(slots, pages)
        self.model = BruteForce(slots, pages)

    @rule(name=st.sampled_from(NAMES), pages=st.integers(1, 4))
    def take(self, name: bytes, pages: int) -> None:
        if name in self.slots:
            return
        idle = self.model.idle()
        there = sum(self.model.here[each].pages for each in idle)
        fits = bool(self.model.free[0] or idle) and pages <= self.model.free[1] + there
        assert self.slots.can_take(pages) is fits
        if fits:
            assert self.slots.evict(pages) == self.model.evict(pages)
            place = self.slots.take(name, pages)
            assert len(place.pages) == pages
            self.model.here[name] = Kept(pages)
        elif not (self.model.free[0] and self.model.free[1] >= pages):
            with pytest.raises(MemoryError):
                self.slots.take(name, pages)

    @precondition(lambda self: self.model.here)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.here)))
        assert self.slots.hold(name) == self.slots.place(name).slot
        self.model.here[name].holds += 1

    @precondition(lambda self: any(kept.holds for kept in self.model.here.values()))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = sorted(name for name, kept in self.model.here.items() if kept.holds)
        name = data.draw(st.sampled_from(held))
        self.slots.release(name)
        self.model.here[name].holds -= 1
        if not self.model.here[name].holds:
            self.model.settle(name)

    @rule(name=st.sampled_from(NAMES), pages=st.integers(1, 4), others=st.lists(st.integers(1, 4)))
    def pin(self, name: bytes, pages: int, others: list[int]) -> None:
        pages = self.model.here[name].pages if name in self.model.here else pages
        if name in self.model.pinned:
            return
        left = self.model.pages - sum(self.model.pinned.values()) - pages
        slots = self.model.slots - len(self.model.pinned) - 1
        fits = slots >= 0 and left >= 0
        if others:
            fits = fits and slots >= 1 and max(others) <= left
        assert self.slots.can_pin(pages, others) is fits
        if fits:
            self.slots.pin(name, pages)
            self.model.pinned[name] = pages

    @rule(name=st.sampled_from(NAMES))
    def unpin(self, name: bytes) -> None:
        self.slots.unpin(name)
        if self.model.pinned.pop(name, None):
            self.model.settle(name)

    @precondition(lambda self: any(not kept.holds for kept in self.model.here.values()))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        unheld = sorted(name for name, kept in self.model.here.items() if not kept.holds)
        name = data.draw(st.sampled_from(unheld))
        self.slots.drop(name)
        del self.model.here[name]

    @invariant()
    def each_slot_and_page_is_in_one_state(self) -> None:
        if not hasattr(self, "slots"):
            return
        slots, model = self.slots, self.model
        assert set(slots) == set(model.here)
        places = [slots.place(name) for name in slots]
        taken = [place.slot for place in places]
        pages = [page for place in places for page in place.pages]
        assert len(set(taken)) == len(taken)
        assert len(set(pages)) == len(pages)
        assert set(taken) <= set(range(slots.num_slots))
        assert set(pages) <= set(range(slots.num_pages))
        kept = [place for name, place in zip(slots, places, strict=True) if not slots.is_idle(name)]
        assert slots.free_slots + slots.evictable_slots + len(kept) == slots.num_slots
        kept_pages = sum(len(place.pages) for place in kept)
        assert slots.free_pages + slots.evictable_pages + kept_pages == slots.num_pages
        assert sorted(filter(slots.is_idle, slots)) == sorted(model.idle())
        assert (slots.free_slots, slots.free_pages) == model.free


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(max_examples=examples(100), stateful_step_count=40)
