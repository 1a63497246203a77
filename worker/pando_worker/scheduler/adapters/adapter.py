"""An adapter as the scheduler serves it, as data; what waits for it, and how long that takes."""

from dataclasses import dataclass, field

from pando_worker.adapters.info import AdapterInfo
from pando_worker.batch import Job
from pando_worker.scheduler.req import Req

# Weight of a new measurement of a load or a wait against the earlier ones.
_NEWEST = 0.25


@dataclass(slots=True)
class Mean:
    """A smoothed duration in seconds; 0.0 before the first measurement."""

    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        share = _NEWEST if self.seconds else 1.0
        self.seconds += share * (seconds - self.seconds)


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
    job: Job[None]
    began: float
    was_in_host: bool


@dataclass(slots=True, eq=False)
class Adapter:
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
