"""What should happen to the tree when a replica had less of a prompt cached than expected?

Run: python -m bench.router.with_trace.tree_correction TRACE.jsonl.gz
The trace must be in Mooncake's format; the script starts its own Valkey.
Replays the trace in virtual time with the real placement script and, per replica, a real RadixCache
of 512-token blocks behind one prefill queue. Answers also occupy the cache, which the shared tree
does not know, so it expects too much. `cut` removes the prompt's path after what was delivered when
the first byte arrives; `keep` leaves it, because by then the replica has computed all of it.
"""

import argparse
import asyncio
import gzip
import heapq
import itertools
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from bench.router.own_valkey import own_valkey
from pando_fleet.placement.placer import Ask, Placement, Placer
from pando_fleet.redis.client import RedisClient, connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache, Tokens

POOL = "bench"
REPLICAS = 8
BLOCK_TOKENS = 512
BEAT_MS = 1_000
DECODE_MS = 20  # per token

Rule = Literal["cut", "keep"]


class Request(NamedTuple):
    at: float  # ms
    blocks: Tokens
    tokens: int
    output: int

    @property
    def path(self) -> bytes:
        """Chunk keys: an id in the trace names a block and all before it."""
        return struct.pack(f">{len(self.blocks)}Q", *self.blocks.tolist())


class Replica:
    def __init__(self, blocks: int) -> None:
        self._allocator = PageAllocator(blocks)
        self.cache = RadixCache(self._allocator, page_size=1)
        self.busy_until = 0.0

    def hold(self, blocks: Tokens) -> int:
        """Caches the blocks, as many as fit; returns how many were cached already."""
        match = self.cache.match_prefix(blocks)
        had = len(match.pages)
        self.cache.inc_lock_ref(match.node)
        self.cache.evict(len(blocks) - had - self._allocator.num_free)
        new = self._allocator.alloc(min(len(blocks) - had, self._allocator.num_free))
        self.cache.insert(blocks[: had + len(new)], np.concatenate((match.pages, new)))
        self.cache.dec_lock_ref(match.node)
        return had


@dataclass(slots=True)
class Totals:
    prompt: int = 0
    predicted: int = 0
    delivered: int = 0


class Replay:
    """One run: a heap of events, and a clock that jumps from one to the next."""

    def __init__(self, redis: RedisClient, blocks: int, rate: float, rule: Rule) -> None:
        self.now = 0.0
        self.totals = Totals()
        self.ttft_ms: list[float] = []
        self._blocks, self._rate, self._rule = blocks, rate, rule
        self._placer = Placer(Wire(redis), POOL, clock=lambda: 1 + int(self.now), every_s=None)
        self._registry = Registry(redis, clock=lambda: 1 + int(self.now))
        self._replicas = {f"r{number}": Replica(blocks) for number in range(REPLICAS)}
        self._numbers = itertools.count(1 << 30)  # of events, leases and blocks of answers
        self._events: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []

    async def run(self, requests: list[Request]) -> None:
        for tick in range(0, int(requests[-1].at) + 1, BEAT_MS):
            self._at(tick, self._beat)
        for request in requests:
            self._at(request.at, partial(self._arrive, request))
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            await event()

    def _at(self, when: float, event: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    async def _beat(self) -> None:
        for name in self._replicas:
            beat = Heartbeat(
                replica=name,
                incarnation="1",
                url=f"http://{name}",
                model=POOL,
                state=ReplicaState.READY,
                capacity_tokens=self._blocks * BLOCK_TOKENS,
                prefill_tokens_per_s=self._rate,
                bytes_per_token=256 / BLOCK_TOKENS,  # one chunk key is one block
            )
            await self._registry.beat(POOL, beat)

    async def _arrive(self, request: Request) -> None:
        ask = Ask(
            keys=request.path,
            prompt_tokens=request.tokens,
            output_tokens=request.output,
            lease=str(next(self._numbers)),
            lease_ms=3_600_000,
        )
        placement = await self._placer.place(ask)
        await self._placer.flush()
        replica = self._replicas[placement.chosen.replica]
        start = max(self.now, replica.busy_until)
        # The queue's length is known only as each prefill starts; this is its minimum.
        uncached = request.tokens - BLOCK_TOKENS * replica.cache.prefix_len(request.blocks)
        replica.busy_until = start + max(1, uncached) / self._rate * 1000
        self._at(start, partial(self._prefill, request, placement))

    async def _prefill(self, request: Request, placement: Placement) -> None:
        had = self._replicas[placement.chosen.replica].hold(request.blocks)
        hit = min(request.tokens - 1, had * BLOCK_TOKENS)
        self.totals.prompt += request.tokens
        self.totals.predicted += placement.chosen.matched_tokens
        self.totals.delivered += hit
        done = self.now + (request.tokens - hit) / self._rate * 1000
        self._at(done, partial(self._first_byte, request, placement, had))

    async def _first_byte(self, request: Request, placement: Placement, had: int) -> None:
        self.ttft_ms.append(self.now - request.at)
        self._placer.prefilled(placement)
        if self._rule == "cut" and had < placement.chosen.matched_chunks - 1:
            self._placer.cut(placement, request.path, had)
        end = self.now + request.output * DECODE_MS
        self._at(end, partial(self._end, request, placement))

    async def _end(self, request: Request, placement: Placement) -> None:
        answer = [next(self._numbers) for _ in range(-(-request.output // BLOCK_TOKENS))]
        replica = self._replicas[placement.chosen.replica]
        replica.hold(np.append(request.blocks, answer).astype(np.int32))
        self._placer.release(placement)
        await self._placer.flush()


def read(path: str) -> list[Request]:
    with gzip.open(path) as lines:
        return [
            Request(
                float(line["timestamp"]),
                np.array(line["hash_ids"], dtype=np.int32),
                max(1, line["input_length"]),
                line["output_length"],
            )
            for line in map(json.loads, lines)
        ]


async def main(path: str) -> None:
    requests = read(path)
    print("blocks  tokens/s  rule  predicted  delivered  TTFT p50, s  p99, s")
    for blocks, rate in itertools.product((500, 2000), (6_000.0, 12_000.0)):
        for rule in ("keep", "cut"):
            with own_valkey() as server:
                redis = connect(server.connection_url)
                replay = Replay(redis, blocks, rate, rule)
                await replay.run(requests)
                await redis.aclose()
            totals, ttft = replay.totals, np.quantile(replay.ttft_ms, (0.5, 0.99)) / 1000
            print(
                f"{blocks:>6}  {rate:>8.0f}  {rule:<4}  {totals.predicted / totals.prompt:>9.3f}"
                f"  {totals.delivered / totals.prompt:>9.3f}  {ttft[0]:>11.2f}  {ttft[1]:>6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", help="TRACE.jsonl.gz")
    asyncio.run(main(parser.parse_args().trace))
