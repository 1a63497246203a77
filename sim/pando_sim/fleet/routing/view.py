"""`View`: the fleet as routers know it, from the last heartbeats."""

from collections.abc import Sequence

from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_sim.fleet.routing.interfaces import Member
from pando_sim.timeline import redis_ms


class View:
    """The same for all routers. While Redis is away it does not change.

    If marks may withhold replicas, a new one is known only after the registry was read.
    """

    def __init__(self, *, has_marks: bool) -> None:
        self._has_marks = has_marks
        self.members: tuple[Member, ...] = ()
        self.is_redis_away = False
        self.has_silent = False  # the registry has more replicas, which have been silent for long
        self._beats: dict[str, tuple[Heartbeat, float]] = {}  # by replica, with their times

    def heard(self, beat: Heartbeat, at_s: float) -> None:
        self._beats[beat.replica] = beat, at_s

    def left(self, replica: str) -> None:
        self._beats.pop(replica, None)

    def last_beats(self) -> list[Heartbeat]:
        """The last heartbeats, by name."""
        return [beat for _, (beat, _) in sorted(self._beats.items())]

    def registered(self, now_s: float) -> list[Replica]:
        """The registry's rows, if no mark withholds a replica and none is silent: the last
        heartbeats, by name."""
        now_ms = redis_ms(now_s)
        return [
            Replica(beat, now_ms - redis_ms(at_s))
            for _, (beat, at_s) in sorted(self._beats.items())
        ]

    def refresh(self, now_s: float) -> None:
        """Applies what was heard until now."""
        fresh_s = FRESH_MS / 1000
        fresh = {
            name: (beat, at_s)
            for name, (beat, at_s) in self._beats.items()
            if now_s - at_s <= fresh_s
        }
        self.has_silent |= len(fresh) < len(self._beats)
        self._beats = fresh
        if self.is_redis_away:
            return
        known = {member.name for member in self.members}
        self.members = tuple(
            Member(beat)
            for name, (beat, at_s) in sorted(self._beats.items())
            if beat.state is ReplicaState.READY and (name in known or not self._has_marks)
        )

    def read_as_sent(self) -> None:
        """Applies the registry's rows without reading them: they are the last heartbeats, and no
        mark withholds a replica."""
        self.members = tuple(
            Member(beat)
            for _, (beat, _) in sorted(self._beats.items())
            if beat.state is ReplicaState.READY
        )

    def read(self, replicas: Sequence[Replica]) -> None:
        """Applies the registry's rows, with marks."""
        self.members = tuple(
            Member(each.beat)
            for each in replicas
            if each.beat.state is ReplicaState.READY
            and not each.withheld
            and each.age_ms <= FRESH_MS
        )
