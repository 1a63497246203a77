"""Hostile clients of a real fleet: what each gets, and that nobody else notices."""

import asyncio
import re
from math import inf
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.e2e.hostile.beside import (
    TRIES,
    WAIT_S,
    alone,
    memory,
    neighbour,
    shrinks_to,
)
from tests.e2e.hostile.rows import ROWS, SMUGGLING
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e


SMALL = 64 * 1024


async def status_of(url: str, data: bytes) -> int:
    """Sends the bytes and reads the status; the server may close while it is still sent."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)

    async def send() -> None:
        try:
            for start in range(0, len(data), 1 << 16):
                writer.write(data[start : start + (1 << 16)])
                await writer.drain()
        except ConnectionError:
            pass

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await reader.readline()
        return int(line.split()[1])
    finally:
        sending.cancel()
        writer.transport.abort()


async def test_each_hostile_request_gets_its_status_and_nobody_waits(
    up: UpProcess, http: aiohttp.ClientSession
) -> None:
    worker = up.replicas()["worker-0"]["url"]
    usual = await alone(http, up)
    for row in ROWS:  # what an endpoint loads at its first use is not growth
        if len(data := row.data()) < SMALL:
            for url in (up.url, worker):
                await status_of(url, data)
    before = memory(up)
    wrong = []
    for row in ROWS:
        data = row.data()  # before the neighbour asks: it takes up to a second
        for where, url in (("router", up.url), ("worker", worker)):
            waits: list[float] = []
            while len(waits) < TRIES and min(waits, default=inf) > usual + WAIT_S:
                async with neighbour(http, up.url) as times:
                    got = await status_of(url, data)
                waits.append(max(times))
                wanted = row.at_worker if where == "worker" and row.at_worker else row.status
                if got != wanted:
                    wrong.append(f"{row.name} at the {where}: {got}, not {wanted}")
            if min(waits) > usual + WAIT_S:
                wrong.append(f"{row.name} at the {where}: its neighbour waited {min(waits):.2f} s")
    large = await shrinks_to(up, before)
    wrong += [f"{part} has grown to {by:.2f} times its memory" for part, by in large.items()]
    assert not wrong, "\n".join(wrong)


async def test_what_is_hidden_behind_or_in_a_request_is_not_served(up: UpProcess) -> None:
    for url in (up.url, up.replicas()["worker-0"]["url"]):
        for row in SMUGGLING:
            where = urlsplit(url)
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(row.data())
            async with asyncio.timeout(PATIENCE_S):
                answers = await reader.read()
            writer.transport.abort()
            statuses = re.findall(rb"^HTTP/1.1 (\d+)", answers, re.MULTILINE)
            assert statuses == [b"%d" % row.status], f"{row.name} at {url}: {answers!r}"
