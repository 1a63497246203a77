"""A real fleet on this machine: a router, two workers with a core each, and Valkey."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import psutil

from bench.simulator.sim_fidelity.measured import Answer
from bench.simulator.sim_fidelity.workload import Ask
from pando.up.fleet import Fleet
from pando.up.free_port import free_port
from pando.up.models import TINY, model_path
from pando.up.plan import UpPlan
from pando.up.session import in_fleet
from pando.up.signals import EndSignals
from pando_router.core import rendezvous
from pando_sim.cost.calibration.calibrate import Calibration, Options, calibrate
from pando_sim.cost.calibration.client import Way

WORKERS = 2
HOST = "127.0.0.1"
LEAD_S = 1.0  # until the first request
PAUSE_S = 0.3  # before a measurement; about a worker's idle time between two requests

Result = TypeVar("Result")


class RealError(Exception):
    """The fleet did not serve the trace."""


@dataclass(frozen=True, slots=True)
class Real:
    """Starts real fleets."""

    capacity_tokens: int  # of each worker's KV pool
    signals: EndSignals
    log: Path  # output of its parts

    async def run(self, policy: str, work: Callable[[Fleet], Awaitable[Result]]) -> Result:
        """Runs `work` in a new fleet, whose caches are empty at first."""
        plan = UpPlan(
            model=model_path(TINY),
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
    """Puts each worker, with all its processes and threads, on its own core, and gives every part
    of the fleet this process's niceness."""
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
    """Needed if the kernel groups processes by session: then `nice` counts only within a session,
    and each part has its own."""
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(os.nice(0)))


async def measure(fleet: Fleet, seed: int) -> list[Calibration]:
    """Measures all workers at once, through the router, because they share the machine with it and
    each other when they serve, too. The fleet's policy is `session`."""
    seen = await fleet.router.fleet()
    assert seen is not None
    ways = _ways(fleet.router.url, [each.replica for each in seen.replicas])

    async def one(number: int, replica: str, url: str) -> Calibration:
        options = Options(
            url=url,
            way=ways[replica],
            repeat=1,
            longest_prompt=1600,
            most_together=8,
            pause_s=PAUSE_S,
            seed=WORKERS * seed + number,
        )
        return await calibrate(options, _show)

    return await asyncio.gather(
        *(one(n, each.replica, each.url) for n, each in enumerate(seen.replicas))
    )


def _ways(router: str, replicas: list[str]) -> dict[str, Way]:
    """A way to each worker: a session that the router keeps there."""
    ways: dict[str, Way] = {}
    for number in count():
        session = str(number)
        replica = rendezvous.rank(session.encode(), replicas)[0]
        ways.setdefault(replica, Way(router, {"x-session-id": session}))
        if len(ways) == len(replicas):
            break
    return ways


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total} measurements", end="", file=sys.stderr, flush=True)


async def replay(fleet: Fleet, asks: list[Ask]) -> list[Answer]:
    """Sends each request at its time, whatever the state of earlier ones. Raises RealError."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        way, begin = Way(fleet.router.url), time.perf_counter() + LEAD_S

        async def one(ask: Ask) -> Answer:
            await asyncio.sleep(begin + ask.at_s - time.perf_counter())
            return await _ask(http, way, fleet.model, ask)

        return await asyncio.gather(*(one(ask) for ask in asks))


async def _ask(http: aiohttp.ClientSession, way: Way, model: str, ask: Ask) -> Answer:
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
    async with http.post(f"{way.url}/v1/completions", json=body, headers=way.headers) as response:
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
