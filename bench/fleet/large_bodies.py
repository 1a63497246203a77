"""The event loop beside a large body: how long does it stand still while the body is read?

Run: python -m bench.fleet.large_bodies
Each body is read as a router and as a worker read it, the worker up to its validated form. A task
that wakes ten times in a millisecond in the same event loop measures the most CPU time that this
process takes between two of its turns, so other programs on the machine do not count. The last row
is beside a thread that only counts: how well the interpreter and the system share any lock.
"""

import argparse
import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from bench.engine.cpu_engine import described
from pando_fleet.free_memory import keep_little_free_memory
from pando_fleet.http.off_loop import give_the_lock_back_soon, off_loop
from pando_router.endpoints import ENDPOINTS
from pando_router.errors import ApiError
from pando_router.parsing.body_reader import BodyReader
from pando_worker.server.front.json_bodies import read_json
from pando_worker.server.process.garbage import look_for_little_garbage
from pando_worker.server.protocol.base import RequestBody
from pando_worker.server.protocol.chats.chat import ChatRequest
from pando_worker.server.protocol.completions import CompletionRequest

MIB = 1 << 20
PAUSE_S = 0.0001
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
MODELS: dict[str, type[RequestBody]] = {CHAT: ChatRequest, COMPLETION: CompletionRequest}
TURN = {"role": "user", "content": "x"}
PARTS = [{"role": "user", "content": [{"type": "text", "text": "x"}] * 26_000}]

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "260,000 prompts": (COMPLETION, {"prompt": ["x"] * 260_000}),
    "260,000 ids": (COMPLETION, {"prompt": list(range(1000, 261_000))}),
    "26,000 messages": (CHAT, {"messages": [TURN] * 26_000}),
    "26,000 parts": (CHAT, {"messages": PARTS}),
    **{f"a text of {n} MiB": (COMPLETION, {"prompt": "x" * n * MIB}) for n in (1, 4, 16, 60)},
}

COUNTED = 10_000_000

Read = Callable[[str, bytes], Awaitable[object]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each body; default: 5")
    rounds = parser.parse_args().rounds
    _as_in_a_server()
    uvloop.run(_measure(rounds))
    print(f"\nmedians of {rounds}; {described(1)}")
    return 0


def _as_in_a_server() -> None:
    keep_little_free_memory()
    give_the_lock_back_soon()
    gc.collect()
    look_for_little_garbage()


async def _measure(rounds: int) -> None:
    reader = BodyReader()

    async def by_router(path: str, body: bytes) -> object:
        return await reader.parsed(ENDPOINTS[path], body, b"")

    async def by_worker(path: str, body: bytes) -> object:
        return await off_loop(lambda: MODELS[path].model_validate(read_json(body)), len(body))

    print("the most CPU time between two turns of the event loop, and in all, in ms")
    print("| body | router | worker |\n|---|---|---|")
    for name, (path, fields) in BODIES.items():
        body = json.dumps({"model": "m", **fields}).encode()
        cells = [await _cell(read, path, body, rounds) for read in (by_router, by_worker)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    cell = await _cell(_counting, "", b"", rounds)
    print(f"| none, a thread counts | {cell} | the same |", flush=True)
    reader.close()


async def _counting(_: str, body: bytes) -> object:
    def count() -> None:
        for _ in range(COUNTED):
            pass

    return await off_loop(count, 1, inline_bytes=0)


async def _cell(read: Read, path: str, body: bytes, rounds: int) -> str:
    gaps, times = [], []
    for _ in range(rounds + 1):  # the first one warms up, or starts a process
        gap, time_s = await _beside(read, path, body)
        gaps.append(1000 * gap)
        times.append(1000 * time_s)
    return f"{statistics.median(gaps[1:]):.1f}, {statistics.median(times[1:]):.0f}"


async def _beside(read: Read, path: str, body: bytes) -> tuple[float, float]:
    longest = 0.0

    async def turns() -> None:
        nonlocal longest
        last = time.process_time()
        while True:
            await asyncio.sleep(PAUSE_S)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    watching = asyncio.create_task(turns())
    await asyncio.sleep(0.05)
    longest, began = 0.0, time.process_time()
    try:
        await read(path, body)
    except ApiError as error:
        raise RuntimeError(error.message) from error
    ended = time.process_time() - began
    await asyncio.sleep(0.002)  # turns after the last one, which frees what was read
    watching.cancel()
    return longest, ended


if __name__ == "__main__":
    sys.exit(main())
