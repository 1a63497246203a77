"""`VirtualAdapters`: adapters that are numbers, whose loads take virtual time.

Like a worker's, loads run one after the other, beside the steps. Host memory holds the adapters
that were loaded last, as many as it has room for.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pando_fleet.registry.adapter import Adapter, AdapterPlace
from pando_sim.adapters import identity_of
from pando_sim.spec import AdapterSpec
from pando_worker.adapters.info import RANK_PAGE, AdapterInfo
from pando_worker.messages import AdapterPlaces

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VirtualJob(Generic[T]):
    """Is done from `ends_s` on."""

    value: T
    ends_s: float
    clock: Callable[[], float]

    def done(self) -> bool:
        return self.clock() >= self.ends_s

    def result(self) -> T:
        return self.value


class VirtualAdapters:
    """Implements the worker's `Adapters`; a path is a name."""

    def __init__(self, spec: AdapterSpec, clock: Callable[[], float]) -> None:
        self.slowness = 1.0  # factor of the loads' times
        self.loads = 0
        self._spec = spec
        self._clock = clock
        self._host: dict[bytes, None] = {}  # least recently loaded first
        self._ends: deque[float] = deque()  # of loads, in order; the last ones

    @property
    def in_host_memory(self) -> Collection[bytes]:
        return self._host.keys()

    def next_s(self, now_s: float) -> float | None:
        """When the next load ends; None if none is in progress."""
        while self._ends and self._ends[0] <= now_s:
            self._ends.popleft()
        return self._ends[0] if self._ends else None

    def check(self, path: str) -> VirtualJob[AdapterInfo]:
        """At once: replicas check their adapters before they are ready."""
        identity = identity_of(path)
        self._keep(identity)
        info = AdapterInfo(identity, Path(path), rank=RANK_PAGE, pages=1, num_bytes=1)
        return VirtualJob(info, 0.0, self._clock)

    def load(self, slot: int, pages: Sequence[int], info: AdapterInfo) -> VirtualJob[None]:
        seconds = self._spec.load_s
        if info.identity not in self._host:
            seconds += self._spec.read_s
        self._keep(info.identity)
        self.loads += 1
        now_s = self._clock()
        begins_s = self._ends[-1] if self.next_s(now_s) is not None else now_s
        self._ends.append(begins_s + self.slowness * seconds)
        return VirtualJob(None, self._ends[-1], self._clock)

    def forget(self, identity: bytes) -> None:
        self._host.pop(identity, None)

    def _keep(self, identity: bytes) -> None:
        self._host.pop(identity, None)
        self._host[identity] = None
        if self._spec.host and len(self._host) > self._spec.host:
            del self._host[next(iter(self._host))]


def adapter_states(names: Sequence[str], places: AdapterPlaces) -> tuple[Adapter, ...]:
    """As a worker reports them in its heartbeats."""
    at = dict.fromkeys(places.host, AdapterPlace.HOST)
    at |= dict.fromkeys(places.waiting, AdapterPlace.WAITING)
    at |= dict.fromkeys(places.device, AdapterPlace.DEVICE)
    identities = map(identity_of, names)
    return tuple(
        Adapter(name=name, identity=identity.hex(), place=at.get(identity, AdapterPlace.DISK))
        for name, identity in zip(names, identities, strict=True)
    )
