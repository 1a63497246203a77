"""`Fleet`: the replicas of the pool, and their heartbeats to Redis."""

import random
from collections.abc import Iterator

from pando_fleet.redis.keys import POOLS
from pando_fleet.redis.layout.calls import Announce, Beat, Leave
from pando_fleet.redis.wire import Line, WireScript
from pando_fleet.registry.registry import beat_call, leave_call
from pando_sim.cost.model import CostModel
from pando_sim.fleet.routing.view import View
from pando_sim.spec import WorkerSpec
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import Replica, ReplicaState
from pando_sim.worker.settings import settings_of


class Fleet:
    """Replicas by name, in the order in which they were started."""

    def __init__(
        self,
        spec: WorkerSpec,
        pool: str,
        cost: CostModel,
        timeline: Timeline,
        line: Line,
        view: View,
        rng: random.Random,
        *,
        strides: bool,
    ) -> None:
        self.replicas: dict[str, Replica] = {}
        self.gone_prompt_tokens = 0  # that removed replicas had admitted
        self.gone_output_tokens = 0  # that removed replicas had produced
        self.gone_cached_tokens = 0  # cached tokens of those prompts
        self.gone_adapter_loads = 0  # that they had made
        self.replica_seconds = 0.0  # of removed replicas
        self.has_lost_requests = False
        self.changes = 0  # of replicas' existence and states, so far
        self._spec = spec
        self._settings = settings_of(spec)
        self._pool = pool
        self._cost = cost
        self._timeline = timeline
        self._line = line
        self._clock = timeline.redis_ms
        self._view = view
        self._random = rng
        self._strides = strides
        self._incarnations = 0
        self._beat = WireScript(line, Beat)
        self._announce = WireScript(line, Announce)
        self._leave = WireScript(line, Leave)

    def start(self, name: str, after_s: float | None) -> None:
        """Raises ValueError if the name is taken."""
        if name in self.replicas:
            raise ValueError(f"there is already a replica {name!r}")
        if after_s is None:
            spread = self._spec.start_spread
            after_s = self._spec.start_s * self._random.uniform(1 - spread, 1 + spread)
        self._incarnations += 1
        self.changes += 1
        replica = Replica(
            name,
            f"{self._incarnations}",
            self._spec,
            self._settings,
            self._cost,
            self._timeline,
            strides=self._strides,
        )
        self.replicas[name] = replica
        if after_s > 0:
            self._timeline.after(after_s, lambda: self._ready(replica))
        else:
            self._ready(replica)

    def _ready(self, replica: Replica) -> None:
        if replica.state is ReplicaState.STARTING and not replica.gone:
            replica.ready_s = self._timeline.now_s
            self._become(replica, ReplicaState.READY)

    def drain(self, name: str) -> None:
        """Its heartbeats say so at once."""
        self._become(self.replicas[name], ReplicaState.DRAINING)

    def _become(self, replica: Replica, state: ReplicaState) -> None:
        self.changes += 1
        replica.become(state)
        self.beat([replica])

    def stop(self, name: str, *, leaves: bool) -> None:
        """`leaves`: like a worker that ends by itself; a killed one just falls silent."""
        replica = self.replicas.pop(name)
        self.changes += 1
        for stay in replica.kill():
            self.has_lost_requests = True
            stay.follower.lost(stay)
        counts = replica.scheduler.meter.counts
        self.gone_prompt_tokens += counts.prompt_tokens_total
        self.gone_cached_tokens += counts.cached_prompt_tokens_total
        self.gone_output_tokens += counts.output_tokens_total
        self.gone_adapter_loads += replica.adapters.loads
        self.replica_seconds += self._timeline.now_s - replica.started_s
        if leaves:
            self._leave.send(leave_call(self._pool, name, replica.incarnation), (), _unheard)
            self._view.left(name)

    def beat(self, replicas: list[Replica]) -> None:
        """Sends the replicas' heartbeats, all at once."""
        now_s = self._timeline.now_s
        for replica in replicas:
            beat = replica.heartbeat()
            call, terms = beat_call(self._pool, beat, self._clock)
            self._beat.send(call, terms, _unheard)
            self._view.heard(beat, now_s)
        announce = Announce(pools=POOLS, now=self._clock(), pool=self._pool)
        self._announce.send(announce, (), _unheard)
        self._view.refresh(now_s)

    def of(self, state: ReplicaState) -> Iterator[Replica]:
        return (each for each in self.replicas.values() if each.state is state)


def _unheard(reply: object) -> None:
    """Ignores the answer to a heartbeat; while Redis is away it is lost."""
