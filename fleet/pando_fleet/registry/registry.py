"""The registry: heartbeats of the replicas of each pool, aged by Redis's own clock.

Workers call `beat` on each change and at least every 500 ms, and `leave` when they end; routers and
the operator read `pools` and `replicas`. Placement reads the packed terms that a heartbeat writes
beside its JSON.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any, TypeVar

import msgspec
from redis.asyncio.cluster import RedisCluster

from pando_fleet.redis import misfits
from pando_fleet.redis.client import TIMEOUT_S, FleetError, FleetUnavailable, RedisClient
from pando_fleet.redis.keys import POOLS, POOLS_COPIES, PoolKeys, pool_name
from pando_fleet.redis.layout import calls
from pando_fleet.redis.layout.calls import Call
from pando_fleet.redis.layout.constants import Held
from pando_fleet.redis.layout.rows import ADAPTERS, AdapterTerms, Terms
from pando_fleet.redis.scripts import Clock, Script, time_arg
from pando_fleet.redis.wire import Wire, WireScript
from pando_fleet.registry.adapter import AdapterPlace, short_key
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState

ANNOUNCE_MS = 2_000
"""The interval at which a pool's name is written."""

FORGET_S = 0.2
"""The time limit for cleaning up after silent pools, and for each read of the names, so that
readers do not wait for a server that hangs."""

Result = TypeVar("Result")

_encode_json = msgspec.json.Encoder().encode
_HEARTBEAT = msgspec.json.Decoder(Heartbeat)  # ignores fields that a newer worker added
_HELD = {
    AdapterPlace.DEVICE: Held.DEVICE,
    AdapterPlace.WAITING: Held.WAITING,
    AdapterPlace.HOST: Held.HOST,
}
_terms_of = attrgetter(*Terms._fields[:-1])


class NameTakenError(FleetError):
    """Another living replica has this name, at `url`; `heard` distinguishes its heartbeats."""

    def __init__(self, replica: str, url: str, heard: str) -> None:
        super().__init__(f"{replica!r} is the name of another living replica, at {url}")
        self.url = url
        self.heard = heard


class Registry:
    """Writes and reads heartbeats. Every method raises FleetUnavailable if Redis is away."""

    def __init__(
        self, redis: RedisClient, clock: Clock | None = None, wire: Wire | None = None
    ) -> None:
        """All calls use the `wire` if there is one: in a cluster redis-py lets calls to one server
        wait for another that is down."""

        def script(call: type[Call]) -> Callable[..., Awaitable[Any]]:
            return Script(redis, call) if wire is None else WireScript(wire, call)

        self._clock = clock
        self._copies = POOLS_COPIES if isinstance(redis, RedisCluster) else (POOLS,)
        self._announce_at: dict[str, float] = {}  # ms, by pool
        self._beat = script(calls.Beat)
        self._announce = script(calls.Announce)
        self._check_writes = script(calls.CheckWrites)
        self._forget_names = script(calls.ForgetNames)
        self._forget_pool = script(calls.ForgetPool)
        self._leave = script(calls.Leave)
        self._pools = script(calls.ListPools)
        self._replicas = script(calls.Replicas)

    async def beat(self, pool: str, heartbeat: Heartbeat) -> str | None:
        """Records the heartbeat under `pool` with Redis's time, and now and then the pool's name.
        Returns the URL of another replica that was recently refused this replica's name.

        Raises NameTakenError if another replica, at another URL, lives under this name; FleetError
        if the heartbeat has no usable name, incarnation or numbers.
        """
        call, terms = beat_call(pool, heartbeat, self._clock)
        answer: list[bytes] | None = await self._beat(call, *terms)
        outcome, *others = [part.decode(errors="replace") for part in answer or (b"",)]
        if outcome == "taken":
            raise NameTakenError(heartbeat.replica, *others)
        now_ms = 1000 * monotonic() if self._clock is None else self._clock()
        if now_ms >= self._announce_at.get(pool, -inf):
            self._announce_at[pool] = now_ms + ANNOUNCE_MS
            announces = [
                self._announce(calls.Announce(copy, time_arg(self._clock), pool))
                for copy in self._copies
            ]
            await _any_of(announces)
        return others[0] if others else None

    async def leave(self, pool: str, replica: str, incarnation: str) -> None:
        """Removes a replica and its tree at once, unless a newer incarnation has taken its name."""
        await self._leave(leave_call(pool, replica, incarnation))

    async def check_writes(self, pool: str) -> None:
        """Tries a write that changes nothing. Raises FleetFull if Redis refuses writes that need
        memory, FleetReadOnly if it refuses all."""
        await self._check_writes(calls.CheckWrites(PoolKeys(pool).replicas))

    async def pools(self) -> list[str]:
        """Names of the pools heard of within the retention, sorted. Forgets the others."""
        now = time_arg(self._clock)
        lists = await _any_of([self._pools(calls.ListPools(copy, now)) for copy in self._copies])
        heard = {name for _, names, _ in lists for name in names}
        if silent := {name for _, _, names in lists for name in names} - heard:
            await self._forget(silent, min(oldest_ms for oldest_ms, _, _ in lists))
        return sorted(name for name in map(pool_name, heard) if name is not None)

    async def _forget(self, silent: Collection[bytes], oldest_ms: int) -> None:
        """Removes from Redis what these pools left behind, and then their names.

        Pools that still have leases, or that Redis cannot forget now, because it is away or refuses
        writes, are left for the next time.
        """
        are_empty = await asyncio.gather(*map(self._is_empty, silent))
        gone = [name for name, is_empty in zip(silent, are_empty, strict=True) if is_empty]
        lists = [calls.ForgetNames(copy, oldest_ms) for copy in self._copies]
        with suppress(FleetUnavailable, TimeoutError):
            async with asyncio.timeout(FORGET_S):
                await asyncio.gather(*(self._forget_names(each, *gone) for each in lists))

    async def _is_empty(self, name: bytes) -> bool:
        """Whether nothing is left of a silent pool; forgets its replicas and routers."""
        if (pool := pool_name(name)) is None:
            return True
        keys = PoolKeys(pool)
        leases, parts, loads = keys.leases
        call = calls.ForgetPool(
            routers=keys.routers,
            leases=leases,
            parts=parts,
            loads=loads,
            queues=keys.queues,
            now=time_arg(self._clock),
        )
        with suppress(FleetUnavailable, TimeoutError):
            async with asyncio.timeout(FORGET_S):
                await self.replicas(pool)  # also forgets silent replicas
                return bool(await self._forget_pool(call))
        return False

    async def replicas(self, pool: str) -> list[Replica]:
        """Replicas of `pool` heard of within the retention, sorted by name; one round trip."""
        keys = PoolKeys(pool)
        rows: list[tuple[bytes, int, bytes, bytes, bytes]] = await self._replicas(
            calls.Replicas(
                replicas=keys.replicas,
                beats=keys.beats,
                terms=keys.terms,
                adapters=keys.adapters,
                marks=keys.marks,
                now=time_arg(self._clock),
            )
        )
        found = []
        for name, age_ms, encoded, withheld, trouble in rows:
            sender = f"{pool}/{name.decode(errors='replace')}"
            if trouble:  # placement continues without this replica
                misfits.skip("terms", sender, trouble.decode(errors="replace"))
            beat = misfits.decode("heartbeat", sender, encoded, _HEARTBEAT)
            if beat is not None:
                found.append(Replica(beat, age_ms, withheld.decode()))
        return sorted(found, key=lambda replica: replica.beat.replica)


async def _any_of(calls: Sequence[Awaitable[Result]]) -> list[Result]:
    """The results of the calls that succeed, at least one; the first error if none does.

    Each of several has TIMEOUT_S: in a cluster with a hanging server redis-py would take longer.
    """

    async def in_time(call: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(TIMEOUT_S if len(calls) > 1 else None):
                return await call
        except TimeoutError:
            raise FleetUnavailable("Redis is not available: no answer in time") from None

    ended = await asyncio.gather(*map(in_time, calls), return_exceptions=True)
    results = [one for one in ended if not isinstance(one, BaseException)]
    for one in ended:
        if isinstance(one, BaseException) and not (results and isinstance(one, FleetError)):
            raise one
    return results


def beat_call(pool: str, heartbeat: Heartbeat, clock: Clock | None) -> tuple[calls.Beat, Terms]:
    """The call, and the terms that follow it. Raises FleetError like `Registry.beat`."""
    keys = PoolKeys(pool)
    try:
        encoded = _encode_json(heartbeat)
        _HEARTBEAT.decode(encoded)  # NaN and infinity become null there
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise FleetError(f"an invalid heartbeat: {error}: {heartbeat}") from error
    call = calls.Beat(
        replicas=keys.replicas,
        beats=keys.beats,
        terms=keys.terms,
        adapters=keys.adapters,
        tree=keys.tree(heartbeat.replica, heartbeat.incarnation),
        marks=keys.marks,
        rival=keys.rival(heartbeat.replica),
        now=time_arg(clock),
        replica=heartbeat.replica,
        heartbeat=encoded,
        is_ready=int(heartbeat.state is ReplicaState.READY),
        slots=_slots_of(heartbeat) if heartbeat.adapter_slots else b"",
        held=_held_by(heartbeat) if heartbeat.adapter_slots else "",
    )
    return call, Terms._make((*_terms_of(heartbeat), 0.0))


def _slots_of(beat: Heartbeat) -> bytes:
    """An ADAPTERS."""

    row = AdapterTerms(
        free_slots=beat.free_adapter_slots,
        loading=beat.adapters_loading,
        ahead=beat.adapters_waiting,
        idle_s=beat.adapter_idle_s,
        load_s=beat.adapter_load_s,
        read_s=beat.adapter_read_s,
        slot_wait_s=beat.adapter_slot_wait_s,
        incarnation=beat.incarnation,
    )
    return ADAPTERS.pack_row(row)


def _held_by(beat: Heartbeat) -> str:
    """Each key once, as two names may share it, and sorted, so that Redis sees what changed."""
    held = {each.key: _HELD[each.place] for each in beat.adapter_states if each.place in _HELD}
    return "".join(f"{short_key(key)}{place}" for key, place in sorted(held.items()))


def leave_call(pool: str, replica: str, incarnation: str) -> calls.Leave:
    keys = PoolKeys(pool)
    return calls.Leave(
        replicas=keys.replicas,
        beats=keys.beats,
        terms=keys.terms,
        adapters=keys.adapters,
        tree=keys.tree(replica, incarnation),
        replica=replica,
        incarnation=incarnation,
    )
