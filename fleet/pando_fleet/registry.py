"""Who lives: heartbeats of the replicas of each pool, aged by Redis's own clock.

Workers `beat` on change and at least every 500 ms and `leave` when they end; routers and the
operator read `pools` and `replicas`. Placement reads the packed terms that a beat leaves beside its
JSON.
"""

import struct
from typing import cast

import msgspec

from pando_fleet import misfits
from pando_fleet.client import FleetError, RedisClient, fleet_errors
from pando_fleet.keys import POOLS, PoolKeys, pool_name
from pando_fleet.replica import Heartbeat, Replica, ReplicaState
from pando_fleet.scripts import Clock, Script, time_arg

FRESH_MS = 3_000
"""A replica whose last heartbeat is older gets no requests: six beats missed."""

RETENTION_MS = 60_000
"""A replica that fell silent stays listed this long, so that people can see it as lost."""

TERMS_VERSION = 3
"""First byte of the packed terms, as `lua/fleet_ops.lua` reads them: one more at each change."""

BEAT = ("clock", "tree_ops", "mark_ops", "beat")
"""Parts of the script that takes a heartbeat."""

_encode_json = msgspec.json.Encoder().encode
_HEARTBEAT = msgspec.json.Decoder(Heartbeat)  # overlooks fields that a newer worker added


class Registry:
    """Heartbeats in and out. Every method raises FleetUnavailable where Redis is away."""

    def __init__(self, redis: RedisClient, clock: Clock | None = None) -> None:
        self._redis = redis
        self._clock = clock
        self._beat = Script(redis, *BEAT)
        self._announce = Script(redis, "clock", "announce")
        self._leave = Script(redis, "leave")
        self._replicas = Script(redis, "clock", "mark_ops", "replicas")

    async def beat(self, pool: str, heartbeat: Heartbeat) -> None:
        """Records the heartbeat under `pool` with Redis's time.

        Raises FleetError where the heartbeat has no usable name, incarnation or numbers.
        """
        await self._beat(*beat_call(pool, heartbeat, self._clock))
        await self._announce([POOLS], time_arg(self._clock), pool, RETENTION_MS)

    async def leave(self, pool: str, replica: str, incarnation: str) -> None:
        """Removes a replica and its tree at once, unless a newer incarnation has taken its name."""
        keys = PoolKeys(pool)
        tree = keys.tree(replica, incarnation)
        await self._leave([keys.replicas, keys.beats, keys.terms, tree], replica, incarnation)

    async def pools(self) -> list[str]:
        """Names of the pools heard of within the retention, sorted."""
        with fleet_errors():
            names = cast(list[bytes], await self._redis.zrange(POOLS, 0, -1))
        return sorted(pool for name in names if (pool := pool_name(name)) is not None)

    async def replicas(self, pool: str) -> list[Replica]:
        """Replicas of `pool` heard of within the retention, sorted by name; one round trip."""
        keys = PoolKeys(pool)
        rows: list[tuple[bytes, int, bytes, bytes]] = await self._replicas(
            [keys.replicas, keys.beats, keys.marks], time_arg(self._clock), RETENTION_MS
        )
        found = []
        for name, age_ms, encoded, withheld in rows:
            sender = f"{pool}/{name.decode(errors='replace')}"
            beat = misfits.decode("heartbeat", sender, encoded, _HEARTBEAT)
            if beat is not None:
                found.append(Replica(beat, age_ms, withheld.decode()))
        return sorted(found, key=lambda replica: replica.beat.replica)


def beat_call(
    pool: str, heartbeat: Heartbeat, clock: Clock | None
) -> tuple[list[str], int | str, str, bytes, bytes, int]:
    """Keys and arguments of the script `BEAT`. Raises FleetError as `Registry.beat`."""
    keys = PoolKeys(pool)
    encoded, terms = _encode(heartbeat)
    tree = keys.tree(heartbeat.replica, heartbeat.incarnation)
    names = [keys.replicas, keys.beats, keys.terms, tree, keys.marks]
    return names, time_arg(clock), heartbeat.replica, encoded, terms, RETENTION_MS


def _encode(beat: Heartbeat) -> tuple[bytes, bytes]:
    """The heartbeat as JSON, and the terms that placement unpacks; empty unless it is ready."""
    try:
        encoded = _encode_json(beat)
        _HEARTBEAT.decode(encoded)  # NaN and infinity are null there
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise FleetError(f"a heartbeat that nobody would accept: {error}: {beat}") from error
    if beat.state is not ReplicaState.READY:
        return encoded, b""
    numbers = struct.pack(
        ">B10d",
        TERMS_VERSION,
        beat.capacity_tokens,
        beat.pinned_tokens,
        beat.cached_tokens,
        beat.prefill_tokens_per_s,
        beat.prefill_context_per_s,
        beat.doubling_context,
        beat.decode_tokens_per_s,
        beat.release_tokens_per_s,
        beat.bytes_per_token,
        beat.max_requests,
    )
    return encoded, b"%b%b\0%b\0" % (numbers, beat.incarnation.encode(), beat.url.encode())
