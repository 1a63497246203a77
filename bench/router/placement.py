"""The cost of placements: Redis's CPU time, and the time from call to answer at a router beside it.

Run: python -m bench.router.placement. Starts its own Valkey servers. Everything that a request
sends counts: its placement, the touch of its path, prefilled and release. Prompts share their first
half, a system prompt. In steady trees every replica holds the shared half, and one replica each
whole prompt; scattered trees, the worst case of a match, hold any part of any prompt; with fresh
prompts the second half of each is new, and all of it is written. For comparison, a PING is measured
at the same rate: what the machine and asyncio need for any answer of Redis.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import uvloop
from redis.asyncio import Redis

from bench.router.own_valkey import own_valkey
from pando_fleet.placement.placer import Ask, Placer
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES, chunk_keys
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.client import connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState

RAW = argparse.RawDescriptionHelpFormatter

POOL = "bench"
PROMPTS = 32
OTHER_CHUNKS = 8_000  # of other prompts in each tree, for a realistic size
TREES = ("steady", "scattered", "fresh")
AT_ONCE = 16  # requests in progress when throughput is measured
REQUESTS = 2_000
RATE = 1_000  # requests a second when latency is measured, or what half a core can do
SECONDS = 2.0


class Prompts:
    """Paths that share their first half; `next` returns one, with a new second half if `fresh`."""

    def __init__(self, chunks: int, fresh: bool) -> None:
        self.chunks, self._fresh = chunks, fresh
        half = chunks // 2
        self.shared = chunk_keys(b"s" * (half * CHUNK_BYTES), seed=0)
        self.known = [
            self.shared + random.randbytes(KEY_BYTES * (chunks - half)) for _ in range(PROMPTS)
        ]
        self._turn = itertools.cycle(self.known)

    def next(self) -> bytes:
        if self._fresh:
            return self.shared + random.randbytes(KEY_BYTES * self.chunks - len(self.shared))
        return next(self._turn)


def beats(replicas: int) -> Iterator[Heartbeat]:
    for number in range(replicas):
        yield Heartbeat(
            replica=f"r{number}",
            incarnation="1",
            url=f"http://10.0.0.{number}:8000",
            model=POOL,
            state=ReplicaState.READY,
            capacity_tokens=64 * (OTHER_CHUNKS + 64_000),
            prefill_tokens_per_s=10_000.0,
            decode_tokens_per_s=1_000.0,
            release_tokens_per_s=5_000.0,
        )


async def fill(redis: Redis, trees: str, replicas: int, prompts: Prompts) -> None:
    """Adds ready replicas and what each holds of each path."""
    tree, chunks = PrefixTree(redis, POOL), prompts.chunks
    for number, beat in enumerate(beats(replicas)):
        others = chunk_keys(random.randbytes(OTHER_CHUNKS * CHUNK_BYTES), seed=number)
        await tree.touch(beat.replica, beat.incarnation, others, 10**6)
        for index, path in enumerate(prompts.known):
            turn = (number + index) % replicas
            if trees == "scattered":
                held = chunks * turn // replicas
            else:
                held = chunks if turn == 0 and trees == "steady" else chunks // 2
            await tree.touch(beat.replica, beat.incarnation, path[: KEY_BYTES * held], 10**6)


def keep_beating(url: str, replicas: int) -> None:
    """Runs in its own process, like the workers' heartbeats, so that it takes no router time."""

    async def beat_on() -> None:
        registry = Registry(connect(url))
        while True:
            for beat in beats(replicas):
                await registry.beat(POOL, beat)
            await asyncio.sleep(1.0)

    asyncio.run(beat_on())


@asynccontextmanager
async def pool(url: str, trees: str, replicas: int, prompts: Prompts) -> AsyncIterator[Redis]:
    redis = connect(url)
    assert isinstance(redis, Redis)
    await fill(redis, trees, replicas, prompts)
    for beat in beats(replicas):
        await Registry(redis).beat(POOL, beat)
    context = multiprocessing.get_context("spawn")
    beating = context.Process(target=keep_beating, args=(url, replicas), daemon=True)
    beating.start()
    try:
        yield redis
    finally:
        beating.kill()
        beating.join()
        await redis.aclose()


_leases = itertools.count()


async def request(placer: Placer, prompts: Prompts) -> float:
    """Everything that one request sends to Redis; returns the seconds of its placement."""
    ask = Ask(
        keys=prompts.next(),
        prompt_tokens=64 * prompts.chunks,
        output_tokens=200,
        lease=f"{next(_leases)}",
        lease_ms=60_000,
    )
    start = time.perf_counter()
    placed = await placer.place(ask)
    took_s = time.perf_counter() - start
    placer.prefilled(placed)
    placer.release(placed)
    return took_s


async def throughput(redis: Redis, prompts: Prompts, routers: int) -> tuple[float, float]:
    """Requests a second with AT_ONCE in progress, and microseconds of Redis's CPU for each."""
    wires = [Wire(redis) for _ in range(routers)]
    placers = [Placer(wire, POOL, failed=_failed) for wire in wires]

    async def client(placer: Placer, count: int) -> None:
        for _ in range(count):
            await request(placer, prompts)

    async def clients(count: int) -> None:
        turns = itertools.cycle(placers)
        await asyncio.gather(*(client(next(turns), count) for _ in range(AT_ONCE)))
        for placer in placers:
            await placer.flush()

    await clients(5)
    cpu_s, start = await redis_cpu_s(redis), time.perf_counter()
    await clients(REQUESTS // AT_ONCE)
    count = REQUESTS // AT_ONCE * AT_ONCE
    rate = count / (time.perf_counter() - start)
    used_us = (await redis_cpu_s(redis) - cpu_s) / count * 1e6
    for wire in wires:
        await wire.aclose()
    return rate, used_us


async def latency(redis: Redis, prompts: Prompts, rate: float) -> tuple[float, ...]:
    """Median and 99th percentile in milliseconds of a placement, then of a PING."""
    wire = Wire(redis)
    placer = Placer(wire, POOL, failed=_failed)

    async def ping() -> float:
        start = time.perf_counter()
        await wire.call(POOL, "PING")
        return time.perf_counter() - start

    placed = await poisson(lambda: request(placer, prompts), rate)
    await placer.flush()
    pinged = await poisson(ping, rate)
    await wire.aclose()
    return tuple(
        1e3 * value
        for took in (placed, pinged)
        for value in (statistics.median(took), statistics.quantiles(took, n=100)[98])
    )


async def poisson(one: Callable[[], Awaitable[float]], rate: float) -> list[float]:
    """The seconds of each call that began within SECONDS, at `rate` per second."""
    loop, due = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    tasks = []
    for _ in range(int(rate * SECONDS)):
        due += random.expovariate(rate)
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.ensure_future(one()))
    return await asyncio.gather(*tasks)


def _failed(reason: str, count: int) -> None:
    print(f"{count} writes were lost: {reason}")


async def redis_cpu_s(redis: Redis) -> float:
    """CPU seconds that the server has used; unaffected by other load on the core."""
    used = await redis.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=RAW)
    parser.add_argument(
        "--trees", nargs="+", choices=TREES, default=TREES, help="only these (default: all)"
    )
    return parser.parse_args()


async def main(kinds: Sequence[str]) -> None:
    print(
        f"{'trees':<9} {'replicas':>8} {'chunks':>6} {'Redis, µs':>10} {'a second a core':>15}"
        f" {'4 routers, µs':>13} {'rate':>8} {'p50, ms':>8} {'p99, ms':>8}"
        f" {'PING p50':>9} {'p99, ms':>8}"
    )
    for trees, (replicas, chunks) in itertools.product(kinds, ((8, 128), (64, 128), (64, 1600))):
        prompts = Prompts(chunks, fresh=trees == "fresh")
        with own_valkey() as server:
            async with pool(server.connection_url, trees, replicas, prompts) as redis:
                _, used_us = await throughput(redis, prompts, routers=1)
                _, of_four_us = await throughput(redis, prompts, routers=4)
                rate = min(RATE, 0.5e6 / used_us)
                times = await latency(redis, prompts, rate)
        print(
            f"{trees:<9} {replicas:>8} {chunks:>6} {used_us:>10.0f} {1e6 / used_us:>15,.0f}"
            f" {of_four_us:>13.0f} {rate:>8.0f} {times[0]:>8.2f} {times[1]:>8.2f}"
            f" {times[2]:>9.2f} {times[3]:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    uvloop.run(main(arguments().trees))
