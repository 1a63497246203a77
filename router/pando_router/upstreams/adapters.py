"""Where an engine without heartbeats holds its LoRA adapters, from what it reports of its requests.

vLLM names the adapters that run or wait, but not those that rest in its slots; it keeps an adapter
there until another one needs the slot, the least recently used first. So the ones that were seen
running last are taken to be there, as many as there are slots.
"""

from dataclasses import dataclass

from pando_fleet.registry.adapter import Adapter, AdapterPlace


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """
    Attributes:
        slots: adapters in device memory at once; 0 if the engine does not say
        running, waiting: names of the adapters of requests that run and wait
    """

    slots: int = 0
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


NO_ADAPTERS = AdapterUse()


class Slots:
    """The adapters in one engine's slots, least recently seen running first."""

    def __init__(self) -> None:
        self._use = NO_ADAPTERS
        self._loaded: dict[str, None] = {}

    def see(self, use: AdapterUse) -> None:
        self._use = use
        for name in use.running:
            self._loaded.pop(name, None)
            self._loaded[name] = None
        while len(self._loaded) > max(use.slots, len(use.running)):
            del self._loaded[next(iter(self._loaded))]

    def forget(self) -> None:
        """Its process has ended."""
        self._use, self._loaded = NO_ADAPTERS, {}

    @property
    def count(self) -> int:
        return self._use.slots

    @property
    def waiting(self) -> int:
        return len(set(self._use.waiting) - self._loaded.keys())

    @property
    def free(self) -> int:
        return max(0, self._use.slots - len(self._use.running))

    def states(self, names: tuple[str, ...]) -> tuple[Adapter, ...]:
        """The adapters that it serves, each with its place; none if it does not report slots."""
        if not self._use.slots:
            return ()
        return tuple(Adapter(name=name, place=self._place(name)) for name in names)

    def _place(self, name: str) -> AdapterPlace:
        if name in self._loaded:
            return AdapterPlace.DEVICE
        return AdapterPlace.WAITING if name in self._use.waiting else AdapterPlace.HOST
