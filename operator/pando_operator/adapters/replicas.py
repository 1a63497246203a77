"""What a plan knows of a replica: its heartbeat, and whether its pod stays and serves."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Held:
    """An adapter that a replica has under some name."""

    identity: str  # digest of its weights
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReplica:
    """A replica whose pod stays and whose containers are ready."""

    name: str
    incarnation: str = ""  # "": no heartbeat yet
    url: str = ""
    token: str = field(default="", repr=False)  # that its admin endpoints want; "": none
    answers: bool = True  # it sends heartbeats, has its model, and its engine runs
    slots: int = 8  # adapters in its device memory at once; 0: it takes none
    holds: Mapping[str, Held] = field(default_factory=dict)  # by the adapter's name
    joining: bool = False  # Kubernetes does not count it as ready yet
    joining_s: float = 0.0  # seconds for which nothing else has kept it from being ready

    @property
    def takes_calls(self) -> bool:
        return self.answers and self.slots > 0

    @property
    def may_be_loading(self) -> bool:
        """Whether another operator may have called it: it has sent heartbeats and has slots."""
        return bool(self.incarnation) and self.slots > 0
