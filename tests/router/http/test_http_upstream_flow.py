"""The client's side of HTTP/1.1: streaming, time limits, bounds, addresses and TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from pando_router.http.answer import (
    MAX_UNREAD_BYTES,
    NoConnectionError,
    ReplicaFailedError,
    ReplicaLostError,
    ReplicaSilentError,
)
from pando_router.http.pool import origin_of
from tests.router.http.http_replicas import OK, Reader, Writer, post, says, whole
from tests.router.http.http_world import SWEEP_S, Worker, echo, listening, read_request
from tests.router.http.http_world import upstream as upstream_
from tests.router.world import until
from tests.waiting import PATIENCE_S


async def test_bytes_come_when_the_replica_sends_them() -> None:
    steps: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        while step := await steps.get():
            writer.write(b"%x\r\n%b\r\n" % (len(step), step))
        writer.write(b"0\r\n\r\n")

    async with Worker(script) as worker, upstream_() as client:
        opening = asyncio.create_task(post(client, worker))
        await until(lambda: steps._getters, "the replica at work")  # type: ignore[attr-defined]
        assert not opening.done()  # a head alone is no first byte
        steps.put_nowait(b"data: 1\n\n")
        answer = await opening
        assert (answer.first_chunk, answer.complete) == (b"data: 1\n\n", False)
        assert answer.is_event_stream
        steps.put_nowait(b"data: 2\n\n")
        assert await answer.read() == b"data: 2\n\n"
        steps.put_nowait(b"")
        assert (await answer.read(), answer.complete) == (b"", True)
        answer.close()


async def test_unread_answer_stops_its_replica() -> None:
    sent = 0
    total = 64 * 1024 * 1024
    chunk = b"x" * 65536

    async def script(reader: Reader, writer: Writer) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(OK + b"content-length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(chunk)
            await writer.drain()
            sent += len(chunk)

    async with Worker(script) as worker, upstream_(idle=0.2) as client:
        answer = await post(client, worker)
        history = [sent]

        def stands_still() -> bool:
            history.append(sent)
            return len(history) > 60 and len(set(history[-60:])) == 1

        await until(stands_still, "the replica waiting")
        assert sent < total / 2
        assert len(answer._unread) * 256 * 1024 < MAX_UNREAD_BYTES * 8
        body = await whole(answer)  # and the pause did not count as silence
        assert len(body) == total


async def test_an_answer_that_is_read_whole_is_bounded() -> None:
    ended = asyncio.Event()

    async def script(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
        while not writer.transport.is_closing():
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await asyncio.sleep(0)
        ended.set()

    async with Worker(script) as worker, upstream_() as client:
        answer = await post(client, worker)
        async with asyncio.timeout(PATIENCE_S):
            body = await answer.whole(10_000)
            await ended.wait()
        assert 10_000 < len(body) <= 10_000 + 8 * MAX_UNREAD_BYTES


async def test_abandoned_answer_closes_its_connection() -> None:
    ended = asyncio.Event()

    async def script(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        await reader.read()
        ended.set()

    async with Worker(script) as worker, upstream_() as client:
        answer = await post(client, worker)
        answer.close()
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()


async def test_of_a_replica_that_is_out_only_silent_requests_and_no_checks_are_taken() -> None:
    """A replica that still sends is slow, not gone."""
    arrived, silence_s = 0, 10 * SWEEP_S

    async def script(reader: Reader, writer: Writer) -> None:
        nonlocal arrived
        head, _ = await read_request(reader)
        arrived += 1
        if b"/talks" in head:
            writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
            while not writer.is_closing():
                writer.write(b"1\r\nx\r\n")
                await asyncio.sleep(SWEEP_S)
        await reader.read()

    async with Worker(script) as worker, upstream_() as client:
        silent = asyncio.create_task(post(client, worker))
        talking = await client.post(worker.url, b"/talks", [], b"")
        check = asyncio.create_task(client.request(b"GET", worker.url, b"/", [], b""))
        await until(lambda: arrived == 3, "all are at the replica")
        assert client.abandon("http://127.0.0.1:1", "it is lost") == 0

        taken: list[int] = []

        def is_taken() -> bool:
            taken.append(client.abandon(worker.url, "it is lost", silent_s=silence_s))
            return bool(taken[-1])

        await until(is_taken, "the silent one is taken")
        assert (taken[0], taken[-1]) == (0, 1)
        with pytest.raises(ReplicaLostError, match="it is lost"):
            await silent
        assert not check.done()
        assert await talking.read()
        assert client.abandon(worker.url, "its engine is stalled") == 1
        with pytest.raises(ReplicaLostError, match="its engine is stalled"):
            while True:
                await talking.read()
        check.cancel()


async def test_cancelled_request_closes_its_connection() -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def script(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        arrived.set()
        await reader.read()
        ended.set()

    async with Worker(script) as worker, upstream_() as client:
        asking = asyncio.create_task(post(client, worker))
        async with asyncio.timeout(PATIENCE_S):
            await arrived.wait()
            asking.cancel()
            await ended.wait()


async def test_silence_before_the_first_byte_and_after_it_differ() -> None:
    async def never(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        await reader.read()

    async def head_only(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
        await reader.read()

    async def one_byte(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        await reader.read()

    async with upstream_(first_byte=0.1, idle=0.05) as client:
        for script in (never, head_only):
            async with Worker(script) as worker:
                with pytest.raises(ReplicaSilentError, match=r"nothing for 0\.1 s"):
                    await post(client, worker)
        async with Worker(one_byte) as worker:
            answer = await post(client, worker)
            with pytest.raises(ReplicaFailedError, match=r"nothing for 0\.05 s"):
                await whole(answer)


async def test_answer_that_never_ends_is_cut_after_the_total_time() -> None:
    async def drips(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(0.01)

    async with Worker(drips) as worker, upstream_(request=0.2) as client:
        answer = await post(client, worker)
        with pytest.raises(ReplicaSilentError, match=r"did not finish within 0\.2 s"):
            await whole(answer)


async def test_connections_to_one_replica_are_bounded() -> None:
    async def waits(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        await reader.read()

    async with Worker(waits) as worker, upstream_(max_connections=2) as client:
        first, second = await post(client, worker), await post(client, worker)
        with pytest.raises(NoConnectionError, match="all 2 connections"):
            await post(client, worker)
        assert client.full() == {worker.url}
        (await client.request(b"GET", worker.url, b"/healthz", [])).close()  # checks get through
        first.close()
        await until(lambda: len(client._pools[worker.url]._open) == 1, "the connection gone")
        (await post(client, worker)).close()
        second.close()


async def test_get_is_asked_without_a_body_and_gets_any_answer() -> None:
    async with listening(echo) as port, upstream_() as client:
        answer = await client.request(b"GET", f"http://127.0.0.1:{port}", b"/healthz", [])
        assert b'"method": "GET"' in await whole(answer)
    async with (
        Worker(says(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")) as worker,
        upstream_() as client,
    ):
        assert (await client.request(b"GET", worker.url, b"/", [])).status == 503


def test_urls_are_taken_apart() -> None:
    v6 = origin_of("https://[::1]:8443/v1/")
    assert (v6.tls, v6.host, v6.port, v6.authority, v6.path) == (
        *(True, "::1", 8443, b"[::1]:8443", b"/v1"),
    )
    assert origin_of("http://worker-0.workers").port == 80
    assert origin_of("https://worker").port == 443
    for url in ("http://user:secret@host", "http://host/?a", "http://host:99999", "host:80"):
        with pytest.raises(ValueError, match=r"it |[Pp]ort"):
            origin_of(url)


async def test_ipv6_replica_answers() -> None:
    async def script(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(script, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, upstream_() as client:
        answer = await client.post(f"http://[::1]:{port}", b"/", [], b"")
        assert await whole(answer) == b"ok"


@asynccontextmanager
async def tls_worker(authority: trustme.CA) -> AsyncIterator[str]:
    async def script(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    server = await asyncio.start_server(script, "localhost", 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}"


async def test_tls_replica_answers_where_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    async with tls_worker(authority) as url:
        async with upstream_() as client:
            with pytest.raises(ReplicaFailedError, match="certificate"):
                await client.post(url, b"/", [], b"")
        bundle = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(bundle))
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        async with upstream_() as client:
            assert await whole(await client.post(url, b"/", [], b"")) == b"ok"
