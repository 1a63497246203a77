"""Connections of clients that send nothing or read nothing: their cost for a worker and others."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest

from pando_fleet.http.open_files import allow_open_files
from tests.waiting import PATIENCE_S
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess, metric, until
from tests.worker.server.stand_in import Trick

pytestmark = pytest.mark.e2e

FILES = 1024
TEXT = "the function returns a list of the names " * 6


@contextmanager
def connected(worker: WorkerProcess, *, receive_bytes: int = 0) -> Iterator[socket.socket]:
    """A client that sends nothing by itself."""
    where = urlsplit(worker.url)
    client = socket.socket()
    if receive_bytes:  # the system doubles it
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    with closing(client):
        client.connect((where.hostname, where.port))
        yield client


def stream(seed: int, tokens: int = 190) -> dict[str, Any]:
    """A long stream: each event has all log-probabilities so far, 10 MB in total for 190 tokens."""
    return {
        "text": TEXT,
        "stream": True,
        "return_logprob": True,
        "top_logprobs_num": 20,
        "return_text_in_logprobs": True,
        "sampling_params": {"max_new_tokens": tokens, "seed": seed},
    }


UNREAD = stream(Trick.SLOW, tokens=1000)
"""The system buffers 2 MB before the worker notices that the client reads nothing. So much is sent
even by a worker that is so slow that it merges dozens of tokens into each event."""

CONTEXT = 2048


def post(client: socket.socket, body: dict[str, object]) -> None:
    data = json.dumps(body).encode()
    head = f"POST /generate HTTP/1.1\r\nhost: w\r\ncontent-length: {len(data)}\r\n\r\n"
    client.sendall(head.encode() + data)


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@asynccontextmanager
async def new_connections(worker: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    """Each request opens one."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(worker.url, connector=connector) as http:
        yield http


async def test_idle_connections_beyond_the_limit_of_files_make_room_for_requests() -> None:
    allow_open_files()
    limits = (FILES, FILES)
    with WorkerProcess.start(
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    ) as worker:
        async with AsyncExitStack() as clients:
            idle = [clients.enter_context(connected(worker)) for _ in range(1500)]
            async with new_connections(worker) as http:
                for _ in range(20):
                    async with http.get("/healthz") as answer:
                        assert answer.status == 200
                    body = {"model": MODEL_NAME, "prompt": "x", "max_tokens": 2}
                    async with http.post("/v1/completions", json=body) as answer:
                        assert answer.status == 200
            closed = [is_closed(client) for client in idle]
            assert closed == sorted(closed, reverse=True), "the oldest went first"
            assert sum(closed) < 700, "and no more than had to"
            assert psutil.Process(worker.process.pid).num_fds() < FILES
        assert worker.log.count("closing those that have been idle longest") == 1


def test_a_worker_raises_its_limit_of_files_as_far_as_it_may() -> None:
    with WorkerProcess.start(
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, FILES))
    ) as worker:
        limits = psutil.Process(worker.process.pid).rlimit(psutil.RLIMIT_NOFILE)
    assert limits == (FILES, FILES)


async def test_a_worker_whose_connections_are_all_busy_still_says_how_it_is() -> None:
    with WorkerProcess.start(max_connections=64) as worker:
        async with AsyncExitStack() as clients:
            for _ in range(33):
                client = clients.enter_context(connected(worker))
                post(client, stream(Trick.QUEUED))
            async with new_connections(worker) as http:

                async def busy() -> bool:
                    async with http.post("/generate", json=stream(0)) as answer:
                        return answer.status == 503 and "overloaded" in await answer.text()

                await until(busy)
                idle = [clients.enter_context(connected(worker)) for _ in range(100)]
                async with http.get("/healthz") as answer:
                    assert answer.status == 200
                async with http.post("/abort_request", json={"rid": "x"}) as answer:
                    assert answer.status == 200
            assert sum(map(is_closed, idle)) >= 68


def test_a_limit_of_files_that_leaves_no_connections_is_refused() -> None:
    few = (96, 96)
    with WorkerProcess.start(
        ready=False, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few)
    ) as worker:
        worker.logged(r"cannot start: this process may open 96 files.*\(ulimit -n\)")


async def test_a_client_that_reads_nothing_is_cut_off_and_its_request_ends() -> None:
    with WorkerProcess.start(write_timeout=1.0, context_length=CONTEXT) as worker:
        with connected(worker, receive_bytes=2048) as deaf:
            post(deaf, UNREAD)
            async with aiohttp.ClientSession(worker.url) as http:
                async with http.post("/generate", json=stream(Trick.SLOW)) as answer:
                    text = await answer.text()

                async def cut() -> bool:
                    return await metric(http, "pando_worker_client_disconnects_total") == 1

                await until(cut)
        worker.logged("cut a connection whose client read nothing of its answer for 1 s")
    assert text.endswith("data: [DONE]\n\n"), "another client's stream takes as long, and is read"


async def test_what_a_client_that_reads_nothing_keeps_waiting_is_bounded() -> None:
    with (
        WorkerProcess.start(max_unread_bytes=10_000, context_length=CONTEXT) as worker,
        connected(worker, receive_bytes=2048) as behind,
    ):
        post(behind, UNREAD)
        await asyncio.to_thread(worker.logged, "whose client is behind by more than max_unread")
        behind.settimeout(PATIENCE_S)
        got = b""
        while b"client_too_slow" not in got:
            got += behind.recv(65536)
        assert b"data: [DONE]" not in got


async def test_a_drain_does_not_wait_for_a_client_that_reads_nothing() -> None:
    with (
        WorkerProcess.start(drain_seconds=0.5, context_length=CONTEXT) as worker,
        connected(worker, receive_bytes=2048) as deaf,
    ):
        post(deaf, UNREAD)
        assert await asyncio.to_thread(deaf.recv, 1)
        worker.process.terminate()
        assert await worker.exit_code() == 0
        assert "Traceback" not in worker.log
        assert "ERROR" not in worker.log
