"""A normal client beside hostile ones, and the memory of the processes that serve both."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import pauses, read_each

WAIT_S = 0.5  # how much longer a normal request may take
TRIES = 3  # a wait that a request causes comes each time, one of the machine does not
GROWTH = 1.1  # of memory, at most
TRIM_S = 20.0  # after which freed memory is the system's again
PARTS = ("router", "worker-0", "worker-1")  # of a worker, the HTTP process


async def ask(http: aiohttp.ClientSession, url: str) -> float:
    """A normal request's seconds."""
    started = time.monotonic()
    body = {"model": MODEL, "prompt": "hello", "max_tokens": 2}
    async with http.post(f"{url}/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    return time.monotonic() - started


@asynccontextmanager
async def neighbour(http: aiohttp.ClientSession, url: str) -> AsyncIterator[list[float]]:
    """Asks again and again meanwhile; yields the times."""
    times: list[float] = []

    async def go_on() -> None:
        while True:
            times.append(await ask(http, url))
            await asyncio.sleep(0.02)

    asking = asyncio.create_task(go_on())
    try:
        yield times
        times.append(await ask(http, url))
    finally:
        asking.cancel()
        if asking.done() and not asking.cancelled():
            asking.result()


async def alone(http: aiohttp.ClientSession, up: UpProcess) -> float:
    """The longest of some requests while nobody else asks. Warms all parts up, too."""
    workers = [replica["url"] for replica in up.replicas().values()]
    times = [await ask(http, url) for url in (up.url, *workers) for _ in range(20)]
    return max(times)


def memory(up: UpProcess) -> dict[str, int]:
    """Bytes of each part that are not of files; a router's with its process for large bodies."""
    found = dict.fromkeys(PARTS, 0)
    for part in PARTS:
        process = up.part(part)
        family = [process, *(process.children() if part == "router" else ())]
        for _, size in read_each(family, lambda one: _anonymous(one.pid)):
            found[part] += size
    return found


def _anonymous(pid: int) -> int:
    """Raises psutil.NoSuchProcess."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    lines = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(lines[0].split()[1]) * 1024 if lines else 0  # none: it has just ended


async def shrinks_to(up: UpProcess, before: dict[str, int]) -> dict[str, float]:
    """Waits until each part's memory is at most GROWTH times what it was. Returns those parts of
    which it is not, after TRIM_S, with their growth."""
    ends_at = time.monotonic() + TRIM_S
    for pause in pauses():
        now = memory(up)
        large = {part: now[part] / before[part] for part in PARTS}
        large = {part: growth for part, growth in large.items() if growth > GROWTH}
        if not large or time.monotonic() > ends_at:
            return large
        await asyncio.sleep(pause)
    raise AssertionError
