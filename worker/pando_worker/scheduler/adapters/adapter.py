"""An adapter as the scheduler serves it, as data; what waits for it, and how long that takes."""

import math
from dataclasses import dataclass, field

from pando_worker.adapters.info import AdapterInfo
from pando_worker.batch import BackgroundJob
from pando_worker.scheduler.req import Req
from pando_worker.stats import Stats

# Weight of a new measurement of a load or a wait against the earlier ones.
_NEWEST = 0.25


@dataclass(slots=True)
class Mean:
    """A smoothed duration in seconds; 0.0 before the first measurement."""

    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        share = _NEWEST if self.seconds else 1.0
        self.seconds += share * (seconds - self.seconds)


@dataclass(slots=True)
class WaitTimes:
    """How long loads and waits take. Both happen one after the other, so each is counted from the
    end of the one before it: placement multiplies them by how many are ahead."""

    load: Mean = field(default_factory=Mean)  # from host memory
    read: Mean = field(default_factory=Mean)  # what reading it from disk adds
    wait: Mean = field(default_factory=Mean)  # in the line for a slot
    loads: int = 0
    _loaded_at: float = -math.inf  # the last one
    _got_slot_at: float = -math.inf

    def loaded(self, load: "Load", now: float) -> None:
        took = now - max(load.began, self._loaded_at)
        self._loaded_at = now
        self.loads += 1
        if load.was_in_host:
            self.load.add(took)
        else:
            self.read.add(max(0.0, took - self.load.seconds))

    def got_slot(self, waited_since: float, now: float) -> None:
        self.wait.add(now - max(waited_since, self._got_slot_at))
        self._got_slot_at = now

    def put_stats(self, stats: Stats) -> None:
        stats.adapter_load_s = self.load.seconds
        stats.adapter_read_s = self.read.seconds
        stats.adapter_slot_wait_s = self.wait.seconds
        stats.adapter_loads_total = self.loads


@dataclass(frozen=True, slots=True)
class Need:
    """An adapter that waiting requests need and that is not open."""

    identity: bytes
    is_starving: bool  # its oldest request was passed over too often


@dataclass(frozen=True, slots=True)
class FailedLoad:
    identity: bytes
    message: str


@dataclass(frozen=True, slots=True)
class Load:
    job: BackgroundJob[None]
    began: float
    was_in_host: bool


@dataclass(slots=True, eq=False)
class ServedAdapter:
    """
    Attributes:
        loads: how often it was loaded and not unloaded
        load: into its slot, in progress
        reqs: that hold its slot
        used_at: when a request last left it, or when it was loaded, seconds
        pins: calls that are answered once it is in its slot
        unloads: calls that are answered once it is forgotten
    """

    info: AdapterInfo
    loads: int = 0
    load: Load | None = None
    used_at: float = 0.0
    reqs: dict[Req, None] = field(default_factory=dict)
    pins: list[int] = field(default_factory=list)
    unloads: list[int] = field(default_factory=list)

    @property
    def remaining_tokens(self) -> int:
        """The most steps that one of its requests may still take."""
        return max(req.remaining_tokens + req.extend_len for req in self.reqs)
