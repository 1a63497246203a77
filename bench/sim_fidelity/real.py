"""A real fleet on this machine: a router, two workers with a core each, and Valkey."""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import psutil

from bench.sim_fidelity.measured import Answer
from bench.sim_fidelity.workload import Ask
from pando.up.fleet import Fleet
from pando.up.plan import Plan, free_port, shipped_model
from pando.up.session import in_fleet
from pando.up.signals import EndSignals
from pando_sim.cost.calibration.calibrate import Calibration, Options, calibrate

WORKERS = 2
HOST = "127.0.0.1"
LEAD_S = 1.0  # until the first request
PAUSE_S = 0.3  # before a measurement; about as long as a worker is idle between two requests

Result = TypeVar("Result")


class RealError(Exception):
    """The fleet did not serve the trace."""


@dataclass(frozen=True, slots=True)
class Real:
    """How to start it."""

    capacity_tokens: int  # of each worker's KV pool
    signals: EndSignals
    log: Path  # what its parts say

    async def run(self, policy: str, work: Callable[[Fleet], Awaitable[Result]]) -> Result:
        """`work` in a fleet of its own, whose caches are empty at first."""
        plan = Plan(
            model=shipped_model(),
            workers=WORKERS,
            host=HOST,
            port=free_port(HOST),
            redis=None,
            drain_seconds=0,
            log_level="warning",
            policy=policy,
            max_total_tokens=self.capacity_tokens,
        )

        async def ready(fleet: Fleet) -> Result:
            await fleet.ready()
            _prepare()
            return await work(fleet)

        with self.log.open("a") as file:
            result = await in_fleet(
                plan, lambda name, line: print(name, line, file=file), ready, self.signals
            )
        if result is None:
            raise KeyboardInterrupt
        return result


def _prepare() -> None:
    """Each worker, with all its processes and threads, on a core of its own; every part of the
    fleet as nice as this process."""
    cores = sorted(os.sched_getaffinity(0))
    parts = psutil.Process().children(recursive=True)
    for process in (psutil.Process(), *parts):
        _share_niceness(process.pid)
    for process in parts:
        words = process.cmdline()
        if "--replica" not in words:
            continue
        number = int(words[words.index("--replica") + 1].rpartition("-")[2])
        for each in (process, *process.children(recursive=True)):
            for thread in each.threads():
                os.sched_setaffinity(thread.id, {cores[number % len(cores)]})


def _share_niceness(pid: int) -> None:
    """Where the kernel groups processes by session, `nice` counts within a session alone, and each
    part has its own."""
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(os.nice(0)))


async def measure(fleet: Fleet, repeat: int, seed: int) -> list[Calibration]:
    """Of each worker, all at once: they share the machine when they serve, too."""
    seen = await fleet.router.fleet()
    assert seen is not None

    async def one(number: int, url: str) -> Calibration:
        options = Options(
            url=url,
            repeat=repeat,
            longest_prompt=1600,
            most_together=8,
            pause_s=PAUSE_S,
            seed=WORKERS * seed + number,
        )
        return await calibrate(options, _show)

    return await asyncio.gather(*(one(n, r.url) for n, r in enumerate(seen.replicas)))


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} measurements", end="", file=sys.stderr, flush=True)


async def router_s(fleet: Fleet, asks: list[Ask], repeat: int) -> float:
    """What a router adds to the first token of a prompt of usual length that is cached: medians of
    asking it and a worker in turn."""
    seen = await fleet.router.fleet()
    assert seen is not None
    ask = Ask(0.0, sorted(asks, key=lambda one: len(one.prompt))[len(asks) // 2].prompt, 1)
    direct: list[float] = []
    routed: list[float] = []
    async with aiohttp.ClientSession() as http:
        for url in (fleet.router.url, *(replica.url for replica in seen.replicas)):
            for _ in range(WORKERS):
                await _ask(http, url, fleet.model, ask)
        for number in range(repeat):
            worker = seen.replicas[number % WORKERS]
            for url, times in ((worker.url, direct), (fleet.router.url, routed)):
                await asyncio.sleep(PAUSE_S)
                times.append((await _ask(http, url, fleet.model, ask)).ttft_s)
    return max(0.0, statistics.median(routed) - statistics.median(direct))


async def replay(fleet: Fleet, asks: list[Ask]) -> list[Answer]:
    """Each request at its time, whatever became of those before. Raises RealError."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        begin = time.perf_counter() + LEAD_S

        async def one(ask: Ask) -> Answer:
            await asyncio.sleep(begin + ask.at_s - time.perf_counter())
            return await _ask(http, fleet.router.url, fleet.model, ask)

        return await asyncio.gather(*(one(ask) for ask in asks))


async def _ask(http: aiohttp.ClientSession, url: str, model: str, ask: Ask) -> Answer:
    body = {
        "model": model,
        "prompt": ask.prompt,
        "max_tokens": ask.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent = time.perf_counter()
    first: float | None = None
    usage: dict[str, Any] = {}
    async with http.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            raise RealError(f"HTTP {response.status}: {await response.text()}")
        replica = response.headers.get("x-pando-replica", "")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.perf_counter()
            chunk = json.loads(line.removeprefix(b"data: "))
            if "error" in chunk:
                raise RealError(f"a stream broke: {chunk['error']}")
            usage = chunk.get("usage") or usage
    if first is None or not usage:
        raise RealError("a stream ended without tokens or usage")
    return msgspec.convert(
        {
            "ttft_s": first - sent,
            "end_s": time.perf_counter() - sent,
            "prompt_tokens": usage["prompt_tokens"],
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
            "replica": replica,
        },
        Answer,
    )
