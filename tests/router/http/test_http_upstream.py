"""The client's side of HTTP/1.1: all the ways in which replicas answer."""

import asyncio

import pytest

from pando_router.http.answer import ReplicaFailedError
from tests.router.http.http_replicas import OK, Reader, Writer, post, says, whole
from tests.router.http.http_world import Worker, read_request
from tests.router.http.http_world import upstream as upstream_
from tests.router.world import until


async def test_request_arrives_as_it_was_given() -> None:
    heads: list[tuple[bytes, bytes]] = []

    async def script(reader: Reader, writer: Writer) -> None:
        heads.append(await read_request(reader))
        writer.write(OK + b"X-Engine: test\r\ncontent-length: 2\r\n\r\nhi")

    async with Worker(script) as worker, upstream_() as client:
        answer = await client.post(worker.url + "/base/", b"/a%20b?c", [(b"x", b"\xe9")], b"body")
        assert (answer.status, answer.length) == (200, 2)
        assert answer.headers() == [(b"x-engine", b"test")]
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
        assert worker.connections == 1  # not tried again, as it may be processing the request


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
        await read_request(reader)  # and closes without an answer, like an idle timeout

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
            connection.idle_until = 0.0  # as KEEP_ALIVE_S later
        await until(lambda: open_ == 0, "the idle connection closed")
        await whole(await post(client, worker))
        assert worker.connections == 2
        await until(lambda: client._pools[worker.url].is_unused, "the closed connection forgotten")


async def test_early_answer_to_a_large_body_is_read() -> None:
    """The replica refuses after reading the head, and never reads the rest."""
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
