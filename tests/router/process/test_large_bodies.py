"""Large bodies at once through one router: its memory stays near their size."""

import asyncio
import base64
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from pando_fleet.redis.client import connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from tests.router.process.router_process import router_process

pytestmark = pytest.mark.e2e

BODY_BYTES = 10 * 1024 * 1024
PIECE = 256 * 1024
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def body_of(kind: str) -> bytes:
    """A chat of BODY_BYTES."""
    text = "words " * (BODY_BYTES // 6)
    if kind == "image":
        url = "data:image/png;base64," + base64.b64encode(os.urandom(BODY_BYTES * 3 // 4)).decode()
        content: object = [{"type": "image_url", "image_url": {"url": url}}]
    else:
        content = text
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Reads a request and drops its body; returns its method."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = re.findall(rb"content-length: *(\d+)", head.lower())
    left = int(lengths[0]) if lengths else 0
    while left:
        piece = await reader.read(min(left, PIECE))
        assert piece, "the router closed the connection"
        left -= len(piece)
    return head.partition(b" ")[0]


@asynccontextmanager
async def gathering(redis_url: str, count: int) -> AsyncIterator[None]:
    """A replica that answers once it has `count` whole requests, and heartbeats until then."""
    came, all_came = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        if await read_request(reader) == b"POST":  # else a health check
            came += 1
            if came == count:
                all_came.set()
            await all_came.wait()
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    redis = connect(redis_url)
    registry = Registry(redis)

    async def beat() -> None:
        heart = Heartbeat(
            replica="a",
            incarnation="i",
            url=f"http://127.0.0.1:{port}",
            model="m",
            state=ReplicaState.READY,
        )
        while True:
            await registry.beat("default", heart)
            await asyncio.sleep(0.1)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])
        server.close()
        await redis.aclose()


async def send(port: int, body: bytes) -> bytes:
    """The status line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode())
    view = memoryview(body)
    for start in range(0, len(body), PIECE):
        writer.write(view[start : start + PIECE])
        await writer.drain()
    status = await reader.readline()
    writer.close()
    return status


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had since `forget_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("chats", [24, pytest.param(64, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["image", "text"])
async def test_memory_is_less_than_one_and_a_half_times_the_bodies(
    valkey_url: str, kind: str, chats: int
) -> None:
    body = body_of(kind)
    async with (
        gathering(valkey_url, chats),
        router_process(valkey_url, placement_timeout=30, connect_timeout=30) as (child, router),
    ):
        await router.ready("a")
        before = psutil.Process(child.pid).memory_info().rss
        forget_peak(child.pid)
        answers = await asyncio.gather(*(send(router.port, body) for _ in range(chats)))
        grown = peak_bytes(child.pid) - before
    assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}
    share = grown / (chats * len(body))
    print(f"\n{kind}: {share:.2f} times the bodies")
    assert 0.9 < share < 1.5, "all bodies are held at once, and little else"
