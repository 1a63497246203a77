"""Makes the lines of a recording about the fleet: sizes of pools, start times, measurements."""

from collections.abc import Callable, Mapping, Sequence

from pando_fleet.registry.replica import Heartbeat
from pando_router.fleet_view.snapshot import Fleet, Member, MemberState
from pando_router.recording.form import MEASURED_REPLICAS, FleetState, Measured, PoolState

_COSTS_MONEY = frozenset(MemberState) - {MemberState.LOST}


class FleetStates:
    """Call `follow` every second; start times are as exact as that."""

    def __init__(
        self,
        router: str,
        policy: Callable[[str], str],
        queue_lengths: Callable[[], Mapping[str, int]],
    ) -> None:
        """
        Args:
            router: a name for it.
            policy: of a pool.
            queue_lengths: requests that wait in this router, by pool.
        """
        self._router = router
        self._policy = policy
        self._queue_lengths = queue_lengths
        # By incarnation, since when; None: since before the first look. Itself None before that.
        self._starting: dict[str, float | None] | None = None
        self._started: dict[str, list[tuple[str, float]]] = {}  # by pool, since the last line
        self._last: dict[str, Heartbeat] = {}  # at the last line, by incarnation
        self._last_at: float | None = None
        self._turn = 0  # which replicas are measured next

    def follow(self, fleet: Fleet, now: float) -> None:
        """Notes which replicas start, and which are ready. One that was not seen from its start has
        no start time."""
        known = self._starting or {}
        starting: dict[str, float | None] = {}
        for pool, members in fleet.pools.items():
            for member in members:
                name = member.beat.incarnation
                if member.state is MemberState.STARTING:
                    starting[name] = known.get(name, None if self._starting is None else now)
                elif name in known and member.state is MemberState.WARMING:
                    starting[name] = known[name]
                elif member.state is MemberState.READY and (since := known.get(name)) is not None:
                    took_s = round(now - since, 1)
                    self._started.setdefault(pool, []).append((member.beat.replica, took_s))
        self._starting = starting

    def line(self, fleet: Fleet, now: float, unrecorded: int) -> FleetState:
        """What the recording says of the time since the last line."""
        queues = self._queue_lengths()
        pools = {
            pool: self._pool(pool, members, queues.get(pool, 0))
            for pool, members in fleet.pools.items()
        }
        state = FleetState(
            fleet_at=round(now, 3),
            router=self._router,
            since_s=0.0 if self._last_at is None else round(now - self._last_at, 3),
            unrecorded=unrecorded,
            pools=pools,
        )
        self._last = {
            member.beat.incarnation: member.beat
            for members in fleet.pools.values()
            for member in members
        }
        self._last_at = now
        self._started = {}
        self._turn += MEASURED_REPLICAS
        return state

    def _pool(self, pool: str, members: Sequence[Member], queued: int) -> PoolState:
        ready = [member.beat for member in members if member.state is MemberState.READY]
        begin = self._turn % len(ready) if len(ready) > MEASURED_REPLICAS else 0
        chosen = (ready[begin:] + ready[:begin])[:MEASURED_REPLICAS]
        return PoolState(
            model=members[0].beat.model,
            policy=self._policy(pool),
            replicas=sum(member.state in _COSTS_MONEY for member in members),
            ready=len(ready),
            draining=sum(member.state is MemberState.DRAINING for member in members),
            queued=queued,
            started=self._started.get(pool, []),
            measured=[self._measured(beat) for beat in chosen],
        )

    def _measured(self, beat: Heartbeat) -> Measured:
        before = self._last.get(beat.incarnation, beat)  # one that was not known has grown by 0
        return Measured(
            beat.replica,
            beat.capacity_tokens,
            beat.running,
            beat.waiting,
            beat.pinned_tokens,
            round(beat.prefill_tokens_per_s, 2),
            round(beat.prefill_context_per_s, 1),
            round(beat.doubling_context, 1),
            round(beat.decode_tokens_per_s, 2),
            beat.prompts_total - before.prompts_total,
            beat.prompt_tokens_total - before.prompt_tokens_total,
            beat.cached_prompt_tokens_total - before.cached_prompt_tokens_total,
            beat.decoded_tokens_total - before.decoded_tokens_total,
            round(beat.decode_seconds_total - before.decode_seconds_total, 5),
        )
