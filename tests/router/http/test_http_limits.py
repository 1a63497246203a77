"""The server's side of HTTP/1.1: limits for clients, and clients that leave."""

import asyncio
import resource

import pytest

from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.limits import MAX_AHEAD_BYTES
from pando_router.errors import ClientDisconnectedError
from tests.router.http.http_requests import CHUNKED, GET, post
from tests.router.http.http_world import BODIES, MAX_BODY_BYTES, Raw, echo, listening, serving_http
from tests.router.world import until
from tests.waiting import PATIENCE_S


async def test_headers_above_the_bound_get_431() -> None:
    async with listening(echo, max_header_bytes=2000) as port:
        for request in (
            post(b"x: " + b"y" * 2000, b"content-length: 0"),  # in one piece
            b"GET / HTTP/1.1\r\nx: " + b"y" * 3000,  # that never ends
            b"GET /" + b"y" * 3000 + b" HTTP/1.1\r\n",
            post(*(b"x%d: y" % number for number in range(300))),
            b"\r\n" * 2000,
        ):
            async with Raw(port) as client:
                client.send(request)
                assert (await client.answer()).status == 431, request[:20]
                assert await client.closed()


async def test_a_head_that_comes_with_its_body_has_the_same_bound() -> None:
    known = len(b"/") + len(b"host: x\r\n") + len(b"content-length: 4000\r\n") + len(b"pad: \r\n")
    async with listening(echo, max_header_bytes=2000) as port:
        for over, status in ((0, 200), (1, 431)):
            async with Raw(port) as client:
                pad = b"pad: " + b"y" * (2000 - known + over)
                client.send(post(pad, b"content-length: 4000", body=b"x" * 4000))
                assert (await client.answer()).status == status


async def test_large_body_behind_small_headers_is_no_large_header() -> None:
    async with listening(echo, max_header_bytes=2000) as port, Raw(port) as client:
        body = b"x" * 100_000
        client.send(post(b"content-length: %d" % len(body), body=body) + GET % b"/")
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 200


async def test_chunks_with_more_around_than_in_them_are_refused() -> None:
    async with listening(echo, max_header_bytes=2000) as port:
        for filler in (b"1;" + b"x" * 4000 + b"\r\na\r\n", b"0\r\nx: " + b"y" * 4000):
            async with Raw(port) as client:
                client.send(post(CHUNKED))
                await asyncio.sleep(0.05)  # so that the head arrives alone
                client.send(filler)
                assert (await client.answer()).status == 400


async def test_slow_headers_are_cut() -> None:
    async with listening(echo, header_timeout=0.5) as port:
        async with Raw(port) as client:
            client.send(b"GET / HTTP/1.1\r\n")
            assert (await client.answer()).status == 408
            assert await client.closed()
        async with Raw(port) as silent:
            assert await silent.closed()


async def test_slow_body_is_cut() -> None:
    async with listening(echo, body_timeout=0.5) as port, Raw(port) as client:
        client.send(post(b"content-length: 10", body=b"abc"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert await client.closed()


async def test_idle_connection_is_closed_and_a_working_one_is_not() -> None:
    done = asyncio.Event()

    async def handler(request: Incoming) -> None:
        if request.path == "/slow":
            await done.wait()
        await echo(request)

    limits = {"idle_timeout": 0.5, "header_timeout": 0.5, "body_timeout": 0.5}
    async with listening(handler, **limits) as port, Raw(port) as idle, Raw(port) as working:
        working.send(GET % b"/slow")
        idle.send(GET % b"/")
        assert (await idle.answer()).status == 200
        assert await idle.closed()
        done.set()
        assert (await working.answer()).status == 200


async def test_client_that_does_not_read_stops_the_handler_and_is_cut() -> None:
    written = 0
    ended = asyncio.Event()

    async def pour(request: Incoming) -> None:
        nonlocal written
        request.start(200, [])
        try:
            while True:
                if not request.write(b"x" * 65536):
                    await request.writable()
                written += 65536
        except ClientDisconnectedError:
            ended.set()
            raise

    async with listening(pour, write_timeout=0.3) as port, Raw(port) as client:
        client.stop_reading()
        client.send(GET % b"/")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        assert written < 32 * 1024 * 1024  # as much as the kernel buffers
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


async def test_pipelined_answers_wait_until_the_one_before_is_taken() -> None:
    served = 0

    async def large(request: Incoming) -> None:
        nonlocal served
        served += 1
        await request.send(200, [], b"x" * (16 * 1024 * 1024))

    async with listening(large) as port, Raw(port) as client:
        client.stop_reading()
        client.send((GET % b"/") * 8)
        await until(lambda: served == 1, "the first one served")
        for _ in range(50):
            await asyncio.sleep(0.002)
        assert served == 1
        client.resume_reading()
        for _ in range(8):
            assert len((await client.answer()).body) == 16 * 1024 * 1024


async def test_client_that_reads_slowly_is_not_cut() -> None:
    size = 24 * 1024 * 1024

    async def pour(request: Incoming) -> None:
        await request.send(200, [], b"x" * size)

    async with listening(pour, write_timeout=3.0, idle_timeout=3.0) as port, Raw(port) as client:
        client.send(GET % b"/")
        await client.head()
        left = size
        while left:
            left -= len(await client.reader.readexactly(min(left, 512 * 1024)))
            await asyncio.sleep(0.07)  # all of it takes longer than `write_timeout`


async def test_client_that_leaves_cancels_what_waits_for_it() -> None:
    left: list[str] = []
    waiting = asyncio.Event()

    async def handler(request: Incoming) -> None:
        try:
            with request.until_gone:
                waiting.set()
                await asyncio.Event().wait()
        except ClientDisconnectedError:
            left.append("until_gone")
            with pytest.raises(ClientDisconnectedError), request.until_gone:
                pytest.fail("a block was entered for a client that has left")
            raise

    async with serving_http(handler) as (_, port):
        async with Raw(port) as client:
            client.send(GET % b"/")
            await waiting.wait()
        await until(lambda: left == ["until_gone"], "the handler noticing that its client left")


@pytest.mark.parametrize("begun", [False, True])
async def test_half_closed_client_gets_its_answer(begun: bool) -> None:
    go_on = asyncio.Event()

    async def handler(request: Incoming) -> None:
        request.start(200, [])
        if begun:
            request.write(b"first ")
        await go_on.wait()
        request.write(b"last")
        request.end()

    async with listening(handler) as port, Raw(port) as client:
        client.send(GET % b"/")
        if begun:
            assert (await client.head())[0] == 200
        client.writer.write_eof()
        if not begun:
            assert await client.head() == (100, {}), "so that one that has left resets"
        go_on.set()
        rest = await client.reader.read()
        assert rest.endswith(b"last\r\n0\r\n\r\n")
        assert begun or rest.startswith(b"HTTP/1.1 200")


async def test_half_closed_client_that_leaves_is_noticed() -> None:
    left = asyncio.Event()
    waiting = asyncio.Event()

    async def handler(request: Incoming) -> None:
        waiting.set()
        await request.left()
        left.set()

    async with listening(handler) as port:
        async with Raw(port) as client:
            client.send(GET % b"/")
            await waiting.wait()
            client.writer.write_eof()
            await client.head()
            assert not left.is_set()
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


async def test_half_closed_client_gets_the_answers_to_its_pipelined_requests() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(GET % b"/1" + GET % b"/2" + b"GET /3 HTTP/1.1\r\nho")
        client.writer.write_eof()
        said = await client.reader.read()
        assert b'"/1"' in said
        assert b'"/2"' in said
        assert said.count(b"HTTP/1.1 200") == 2


async def test_client_that_leaves_within_its_body_is_noticed() -> None:
    left = asyncio.Event()

    async def handler(request: Incoming) -> None:
        try:
            await request.body(100, BODIES)
        except ClientDisconnectedError:
            left.set()
            raise

    async with listening(handler) as port:
        async with Raw(port) as client:
            client.send(post(b"content-length: 10", body=b"abc"))
            await asyncio.sleep(0.02)
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


async def test_cancellation_from_elsewhere_is_not_taken_for_a_client_that_left() -> None:
    seen: list[type[BaseException]] = []
    started = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def handler(request: Incoming) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        try:
            with request.until_gone:
                started.set()
                await asyncio.Event().wait()
        except BaseException as error:
            seen.append(type(error))
            raise

    async with listening(handler) as port, Raw(port) as client:
        client.send(GET % b"/")
        await started.wait()
        tasks[0].cancel()
        assert await client.closed()
        assert seen == [asyncio.CancelledError]


async def test_draining_server_answers_and_sends_clients_away() -> None:
    async with serving_http(echo) as (server, port), Raw(port) as client:
        client.send(GET % b"/1")
        assert "connection" not in (await client.answer()).headers
        server.draining = True
        client.send(GET % b"/2")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.closed()


async def test_what_comes_before_it_is_asked_for_is_bounded() -> None:
    read_on = asyncio.Event()
    seen: list[int] = []

    async def late(request: Incoming) -> None:
        await read_on.wait()
        seen.append(request.body_bytes)
        await echo(request)

    async with listening(late) as port, Raw(port) as client:
        body = b"x" * MAX_BODY_BYTES
        client.send(post(b"content-length: %d" % len(body), body=body))
        await asyncio.sleep(0.1)
        read_on.set()
        assert (await client.answer()).json["body"] == body.decode()
        assert seen[0] <= MAX_AHEAD_BYTES + 256 * 1024  # plus one read of the loop
