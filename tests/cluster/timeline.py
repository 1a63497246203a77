"""Samples a pool and its clients every second during a run, into a JSON file that
`tools/plot_scaling.py` draws."""

import json
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from tests.cluster.kube import ApiError, Cluster, Object

EVERY_S = 1.0


@dataclass(slots=True, kw_only=True)
class Sample:
    """The state at one second of the run. Numbers of replicas are from the pool's status."""

    at: float
    clients: int
    replicas: int
    ready: int
    draining: int
    desired: int | None
    pressure: float | None


@dataclass(slots=True)
class Timeline:
    """Used as a context: samples are taken inside it."""

    cluster: Cluster
    pool: str
    target: float
    clients: int = 0  # set by the test
    samples: list[Sample] = field(default_factory=list)
    missed: int = 0  # samples that the API server did not give
    began: float = field(default_factory=time.time)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Timeline":
        self._thread = threading.Thread(target=self._run, name="timeline", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def write(self, path: Path, streams: list[Object], decisions: list[Object]) -> None:
        """`streams` in the load pod's form."""
        path.parent.mkdir(parents=True, exist_ok=True)
        told = {
            "pool": self.pool,
            "target": self.target,
            "samples": [asdict(sample) for sample in self.samples],
            "streams": [
                {
                    "at": round(stream["started"] - self.began, 2),
                    "first_s": stream["first_s"],
                    "seconds": stream["seconds"],
                    "outcome": stream["outcome"],
                    "replica": stream["replica"],
                }
                for stream in streams
            ],
            "decisions": decisions,
        }
        path.write_text(json.dumps(told, indent=1) + "\n")

    def _run(self) -> None:
        # A separate client, as two threads must not share a client's connections.
        cluster = Cluster(self.cluster.namespace)
        while not self._over.wait(EVERY_S):
            try:
                status = cluster.pool_status(self.pool)
            except ApiError:
                self.missed += 1
                continue
            self.samples.append(
                Sample(
                    at=round(time.time() - self.began, 2),
                    clients=self.clients,
                    replicas=status.get("replicas", 0),
                    ready=status.get("readyReplicas", 0),
                    draining=status.get("drainingReplicas", 0),
                    desired=status.get("desired"),
                    pressure=status.get("pressure"),
                )
            )
