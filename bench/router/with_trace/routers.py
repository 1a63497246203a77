"""Do several routers place as well as one?

Run: python -m bench.router.with_trace.routers TRACE.jsonl.gz [REQUESTS]
The trace must be in Mooncake's format; the script starts its own Valkey.
Replays the trace on 8 light workers of 2,000 blocks of 512 tokens, with 1 router and with 4, twice
each. Routers are processes with their own connections. Workers live in virtual time, which stands
still while the requests of one moment are placed: the routers that got them race for replicas.
Writes that nobody waits for, such as touches of paths, follow the routers' own clocks, some
milliseconds later as in production, while virtual time runs many times as fast. So this race is
harder than that of real routers, and a busy machine makes it no easier.
"""

import argparse
import asyncio
import gzip
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bench.router.own_valkey import own_valkey
from bench.router.with_trace.router_process import RouterProcess
from pando_fleet.redis.client import connect
from tests.fleet.light_fleet import POOL, LightFleet, Outcome, Request

BLOCK_TOKENS = 512
BLOCKS = 2_000
PREFILL_PER_S = 8_000.0
BEAT_MS = 1_000.0  # half as often as real ones, because heartbeats take most of a run's time
ROUTERS = (1, 4, 1, 4)


def read(path: str, most: int) -> Iterator[Request]:
    with gzip.open(path) as lines:
        for line in itertools.islice(lines, most):
            row = json.loads(line)
            full = max(1, row["input_length"] // BLOCK_TOKENS)
            yield Request(
                at_ms=float(row["timestamp"]),
                chunks=tuple(row["hash_ids"][:full]),
                tokens=max(1, row["input_length"]),
                output_tokens=row["output_length"],
            )


@dataclass
class Time:
    """The time of the fleet, once there is one."""

    fleet: LightFleet | None = None

    def now_ms(self) -> int:
        return self.fleet.clock() if self.fleet is not None else 0


async def replay(requests: Iterator[Request], routers: int) -> Outcome:
    with own_valkey() as server:
        redis = connect(server.connection_url)
        virtual = Time()
        racing = await asyncio.gather(
            *(
                RouterProcess.start(server.connection_url, POOL, virtual.now_ms)
                for _ in range(routers)
            )
        )
        virtual.fleet = LightFleet(
            redis,
            racing=racing,
            beat_ms=BEAT_MS,
            capacity_chunks=BLOCKS,
            prefill_per_s=PREFILL_PER_S,
            chunk_tokens=BLOCK_TOKENS,
        )
        outcome = await virtual.fleet.run(requests)
        for router in racing:
            await router.close()
        await redis.aclose()
    return outcome


def spread(load: Counter[str]) -> float:
    """The busiest replica's share divided by the mean."""
    return max(load.values()) / (load.total() / len(load))


async def main(path: str, most: int) -> None:
    moments = Counter(request.at_ms for request in read(path, most))
    print(
        f"{moments.total():,} requests at {len(moments):,} moments,"
        f" {max(moments.values())} at most at one"
    )
    print("routers hit rate  busiest/mean: tokens computed  prompts  TTFT p50, s  p99, s  took, s")
    for routers in ROUTERS:
        start = time.perf_counter()
        outcome = await replay(read(path, most), routers)
        print(
            f"{routers:>7} {outcome.hit_rate:>8.4f} {spread(outcome.prefilled):>29.4f}"
            f" {spread(outcome.requests):>8.4f} {outcome.ttft_ms(0.5) / 1000:>12.2f}"
            f" {outcome.ttft_ms(0.99) / 1000:>7.1f} {time.perf_counter() - start:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", help="TRACE.jsonl.gz")
    parser.add_argument(
        "requests", nargs="?", type=int, default=10**9, help="only this many requests"
    )
    given = parser.parse_args()
    asyncio.run(main(given.trace, given.requests))
