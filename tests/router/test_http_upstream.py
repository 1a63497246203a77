"""The client's side of HTTP/1.1: replicas that answer in all the ways that replicas do."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from pando_router.http.answer import MAX_UNREAD_BYTES
from pando_router.http.pool import origin_of
from pando_router.http.upstream import (
    Answer,
    NoConnectionError,
    ReplicaFailedError,
    ReplicaSilentError,
    Upstream,
)
from tests.router.http_world import PATIENCE_S, Script, Worker, echo, listening, read_request
from tests.router.http_world import upstream as upstream_
from tests.router.world import until

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


def says(answer: bytes, *, close: bool = False) -> Script:
    """Answers every request of a connection so; `close` ends it after the first."""

    async def script(reader: Reader, writer: Writer) -> None:
        while True:
            await read_request(reader)
            writer.write(answer)
            if close:
                return

    return script


async def whole(answer: Answer) -> bytes:
    pieces = [answer.first_chunk]
    async with asyncio.timeout(PATIENCE_S):
        while not answer.complete:
            pieces.append(await answer.read())
    answer.close()
    return b"".join(pieces)


async def post(client: Upstream, worker: Worker, body: bytes = b"body") -> Answer:
    async with asyncio.timeout(PATIENCE_S):
        return await client.post(worker.url, b"/v1/x?y=z", [(b"x-sent", b"yes")], body)


OK = b"HTTP/1.1 200 OK\r\n"


async def test_request_arrives_as_it_was_given() -> None:
    heads: list[tuple[bytes, bytes]] = []

    async def script(reader: Reader, writer: Writer) -> None:
        heads.append(await read_request(reader))
        writer.write(OK + b"X-Engine: test\r\ncontent-length: 2\r\n\r\nhi")

    async with Worker(script) as worker, upstream_() as client:
        answer = await client.post(worker.url + "/base/", b"/a%20b?c", [(b"x", b"\xe9")], b"body")
        assert (answer.status, answer.headers()) == (
            200,
            [(b"x-engine", b"test"), (b"content-length", b"2")],
        )
        assert await whole(answer) == b"hi"
    host = worker.url.removeprefix("http://").encode()
    assert heads == [
        (
            b"POST /base/a%20b?c HTTP/1.1\r\nhost: "
            + host
            + b"\r\ncontent-length: 4\r\nx: \xe9\r\n\r\n",
            b"body",
        )
    ]


ANSWERS = {
    "with a length": (OK + b"content-length: 5\r\n\r\nhello", b"hello"),
    "in chunks": (
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"hello",
    ),
    "in chunks with trailers": (
        OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-evil: 1\r\n\r\n",
        b"hello",
    ),
    "empty": (OK + b"content-length: 0\r\n\r\n", b""),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "after 100 continue": (
        b"HTTP/1.1 100 Continue\r\nx-evil: 1\r\n\r\n" + OK + b"content-length: 5\r\n\r\nhello",
        b"hello",
    ),
    "an error": (b"HTTP/1.1 418 \r\ncontent-length: 5\r\n\r\nhello", b"hello"),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_connection_is_used_again_after_an_answer(kind: str) -> None:
    wire, body = ANSWERS[kind]
    async with Worker(says(wire)) as worker, upstream_() as client:
        for _ in range(3):
            answer = await post(client, worker)
            assert await whole(answer) == body
            assert answer.header(b"x-evil") == b""
        assert worker.connections == 1


async def test_answer_without_a_length_ends_with_its_connection() -> None:
    async with Worker(says(OK + b"\r\nhello", close=True)) as worker, upstream_() as client:
        for _ in range(2):
            assert await whole(await post(client, worker)) == b"hello"
        assert worker.connections == 2


CUT = {
    "short of its length": OK + b"content-length: 10\r\n\r\nhello",
    "between chunks": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "within a chunk": OK + b"transfer-encoding: chunked\r\n\r\na\r\nhello",
}


@pytest.mark.parametrize("kind", CUT)
async def test_answer_that_is_cut_is_not_taken_for_a_whole_one(kind: str) -> None:
    async with Worker(says(CUT[kind], close=True)) as worker, upstream_() as client:
        answer = await post(client, worker)
        with pytest.raises(ReplicaFailedError, match="within its answer"):
            await whole(answer)


NO_ANSWERS = {
    "nothing": b"",
    "half a head": OK + b"content-",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "two lengths": OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "both lengths": OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "headers without end": OK + b"x: y\r\n" * 60_000,
    "502": b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
    "503": b"HTTP/1.1 503 Not Now\r\ncontent-length: 3\r\n\r\nbusy",
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
async def test_replica_that_does_not_answer_has_failed(kind: str) -> None:
    async with Worker(says(NO_ANSWERS[kind], close=True)) as worker, upstream_() as client:
        with pytest.raises(ReplicaFailedError) as failure:
            await post(client, worker)
        assert str(failure.value)
        assert worker.connections == 1  # not tried a second time: it may be at work


async def test_refused_and_unknown_replicas_have_failed() -> None:
    async with upstream_() as client:
        for url in (
            "http://127.0.0.1:1",
            "http://no-such-host.invalid:80",
            "ftp://127.0.0.1",
            "http://",
            "http://a b/",
            "nonsense",
        ):
            with pytest.raises(ReplicaFailedError) as failure:
                await client.post(url, b"/", [], b"")
            assert str(failure.value)


async def test_request_that_met_a_closing_connection_is_sent_on_a_new_one() -> None:
    requests = 0

    async def closes_on_the_second(reader: Reader, writer: Writer) -> None:
        nonlocal requests
        await read_request(reader)
        requests += 1
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        await read_request(reader)  # and closes without an answer, as if it had been idle too long

    async with Worker(closes_on_the_second) as worker, upstream_() as client:
        for number in range(1, 4):
            assert await whole(await post(client, worker)) == b"ok"
            assert (requests, worker.connections) == (number, number)


async def test_request_whose_answer_had_begun_is_not_sent_again() -> None:
    async def dies_in_the_second(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        await read_request(reader)
        writer.write(b"HTTP/1.1 200")

    async with Worker(dies_in_the_second) as worker, upstream_() as client:
        await whole(await post(client, worker))
        with pytest.raises(ReplicaFailedError):
            await post(client, worker)
        assert worker.connections == 1


async def test_second_answer_to_one_request_is_nobodys() -> None:
    one, evil = (OK + b"content-length: 4\r\n\r\n" + word for word in (b"mine", b"evil"))
    for wire in (one + evil, one + evil[:20]):
        async with Worker(says(wire)) as worker, upstream_() as client:
            for number in range(1, 4):
                assert await whole(await post(client, worker)) == b"mine"
                assert worker.connections == number


async def test_idle_connections_are_closed_in_time_and_by_the_replica() -> None:
    open_ = 0

    async def script(reader: Reader, writer: Writer) -> None:
        nonlocal open_
        open_ += 1
        await read_request(reader)
        writer.write(OK + b"content-length: 2\r\n\r\nok")
        if worker.connections > 1:
            return
        await reader.read()
        open_ -= 1

    async with Worker(script) as worker, upstream_() as client:
        await whole(await post(client, worker))
        for connection in list(client._pools[worker.url]._idle):
            connection.deadline = 0.0  # as KEEP_ALIVE_S later
        await until(lambda: open_ == 0, "the idle connection closed")
        await whole(await post(client, worker))
        assert worker.connections == 2
        await until(lambda: client._pools[worker.url].is_unused, "the closed connection forgotten")


async def test_early_answer_to_a_large_body_is_read() -> None:
    """The replica refuses by the head alone, and never reads the rest."""
    size = 32 * 1024 * 1024
    done = asyncio.Event()

    async def refuses(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await writer.drain()
        await done.wait()

    async with Worker(refuses) as worker, upstream_() as client:
        for number in range(1, 3):
            answer = await post(client, worker, b"x" * size)
            assert (answer.status, await whole(answer)) == (413, b"big")
            assert worker.connections == number  # the rest of the body is still in the first
        done.set()


async def test_large_body_arrives_whole() -> None:
    bodies: list[bytes] = []

    async def script(reader: Reader, writer: Writer) -> None:
        bodies.append((await read_request(reader))[1])
        writer.write(OK + b"content-length: 0\r\n\r\n")

    body = bytes(range(256)) * 40_000
    async with Worker(script) as worker, upstream_() as client:
        await whole(await post(client, worker, body))
    assert bodies == [body]


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
        body = await whole(answer)  # and nobody took the pause for silence
        assert len(body) == total


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
        with pytest.raises(ReplicaSilentError, match=r"not done after 0\.2 s"):
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
        assert client.full == {worker.url}
        (await client.request(b"GET", worker.url, b"/healthz", [])).close()  # checks get through
        first.close()
        await until(lambda: len(client._pools[worker.url]._open) == 1, "the connection gone")
        (await post(client, worker)).close()
        second.close()


async def test_get_is_asked_without_a_body_and_gets_any_answer() -> None:
    async with listening(echo) as port, upstream_() as client:
        answer = await client.request(b"GET", f"http://127.0.0.1:{port}", b"/healthz", [])
        assert b'"method": "GET"' in await whole(answer)
    async with Worker(says(NO_ANSWERS["503"])) as worker, upstream_() as client:
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
