"""The server's side of HTTP/1.1, spoken to in raw bytes."""

import asyncio
import resource
import socket

import pytest

from pando_router.errors import ClientDisconnectedError
from pando_router.http.incoming import Incoming
from pando_router.http.limits import MAX_AHEAD_BYTES, MAX_AHEAD_REQUESTS
from tests.router.http_world import BODIES, MAX_BODY_BYTES, Raw, echo, listening, serving_http
from tests.router.world import until

GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"


def post(*headers: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = [b"POST / HTTP/" + version, b"host: x", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def test_one_connection_serves_one_request_after_the_other() -> None:
    async with listening(echo) as port, Raw(port) as client:
        for number in range(3):
            client.send(post(b"content-length: 1", body=b"%d" % number))
            answer = await client.answer()
            assert (answer.status, answer.json["body"]) == (200, str(number))
            assert "connection" not in answer.headers


async def test_request_that_comes_byte_by_byte_is_understood() -> None:
    request = post(
        b"x-empty:", b"transfer-encoding: chunked", body=b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"
    )
    async with listening(echo) as port, Raw(port) as client:
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            client.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await client.answer()).json["body"] == "abcd"


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    release = asyncio.Event()

    async def slow_first(request: Incoming) -> None:
        if request.path == "/0":
            await release.wait()
        await echo(request)

    async with listening(slow_first) as port, Raw(port) as client:
        client.send(b"".join(GET % b"/%d" % number for number in range(3)))
        client.send(post(b"content-length: 3", body=b"abc") + GET % b"/last")
        release.set()
        targets = [(await client.answer()).json["target"] for _ in range(5)]
        assert targets == ["/0", "/1", "/2", "/", "/last"]


async def test_endless_pipeline_is_not_read_ahead_of_its_answers() -> None:
    release = asyncio.Event()

    async def never_done(request: Incoming) -> None:
        await release.wait()
        await echo(request)

    async with listening(never_done) as port, Raw(port) as client:
        one = post(b"content-length: 60000", body=b"x" * 60000)
        total = 64 * 1024 * 1024
        for _ in range(total // len(one)):
            client.send(one)
        sizes = [client.writer.transport.get_write_buffer_size()]

        def stands_still() -> bool:
            sizes.append(client.writer.transport.get_write_buffer_size())
            return len(sizes) > 50 and len(set(sizes[-50:])) == 1

        await until(stands_still, "the server reading no further")
        assert sizes[-1] > total / 2
        release.set()
        for _ in range(20):
            assert (await client.answer()).status == 200


async def test_too_many_requests_at_once_are_answered_as_far_as_they_were_taken() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(b"".join(GET % b"/%d" % number for number in range(MAX_AHEAD_REQUESTS + 50)))
        answers = [await client.answer() for _ in range(MAX_AHEAD_REQUESTS)]
        assert [answer.json["target"] for answer in answers] == [
            f"/{number}" for number in range(MAX_AHEAD_REQUESTS)
        ]
        assert answers[-1].headers["connection"] == "close"
        assert await client.closed()


CHUNKED = b"transfer-encoding: chunked"
AMBIGUOUS = {
    "both lengths": post(b"content-length: 3", CHUNKED, body=b"0\r\n\r\nGET /evil"),
    "both lengths, the other way round": post(CHUNKED, b"content-length: 3", body=b"0\r\n\r\n"),
    "two lengths": post(b"content-length: 3", b"content-length: 4", body=b"abcd"),
    "the same length twice": post(b"content-length: 3", b"content-length: 3", body=b"abc"),
    "a list of lengths": post(b"content-length: 3, 3", body=b"abc"),
    "a signed length": post(b"content-length: +3", body=b"abc"),
    "a negative length": post(b"content-length: -3", body=b"abc"),
    "a length in hex": post(b"content-length: 0x3", body=b"abc"),
    "a length beyond 64 bits": post(b"content-length: 99999999999999999999", body=b"abc"),
    "an empty length": post(b"content-length:", body=b"abc"),
    "space before the colon": post(b"content-length : 3", body=b"abc"),
    "a bare line feed": b"POST / HTTP/1.1\nhost: x\ncontent-length: 3\n\nabc",
    "a folded header": post(b"x: a\r\n b", b"content-length: 3", body=b"abc"),
    "a null in a header": post(b"x: a\0b", b"content-length: 3", body=b"abc"),
    "a carriage return in a header": post(b"x: a\rb", b"content-length: 3", body=b"abc"),
    "chunked twice": post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"),
    "chunked and then something": post(b"transfer-encoding: chunked, x", body=b"0\r\n\r\n"),
    "chunked in HTTP/1.0": post(CHUNKED, body=b"0\r\n\r\n", version=b"1.0"),
    "a chunk that is longer than it says": post(CHUNKED, body=b"1\r\nabc\r\n0\r\n\r\n"),
    "a chunk size that is none": post(CHUNKED, body=b"zz\r\nabc\r\n0\r\n\r\n"),
    "a chunk size beyond 64 bits": post(CHUNKED, body=b"fffffffffffffffff\r\nabc"),
    "a chunk that ends with a bare line feed": post(CHUNKED, body=b"3\nabc\n0\n\n"),
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": post(b"host: y", b"content-length: 0"),
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a target that is none": GET % b"mailto:x",
}


@pytest.mark.parametrize("case", AMBIGUOUS)
async def test_request_that_two_servers_could_read_differently_is_refused(case: str) -> None:
    evil = GET % b"/evil"
    served: list[str] = []

    async def handler(request: Incoming) -> None:
        await request.body(MAX_BODY_BYTES, BODIES)
        served.append(request.path)
        await request.send(200, [])

    async with listening(handler) as port, Raw(port) as client:
        client.send(AMBIGUOUS[case] + evil)
        answer = await client.answer()
        assert answer.status == 400
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert answer.headers["connection"] == "close"
        assert await client.closed()
        assert not served


UNSUPPORTED = {
    "gzip, chunked": (post(b"transfer-encoding: gzip, chunked", body=b"0\r\n\r\n"), 501),
    "identity": (post(b"transfer-encoding: identity", body=b"abc"), 501),
    "unknown coding": (post(b"transfer-encoding: xchunked", body=b"0\r\n\r\n"), 501),
    "CONNECT": (b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n", 501),
    "HTTP/2": (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 505),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
async def test_what_is_not_spoken_here_is_named(case: str) -> None:
    request, status = UNSUPPORTED[case]
    async with listening(echo) as port, Raw(port) as client:
        client.send(request)
        answer = await client.answer()
        assert answer.status == status
        assert answer.json["error"]["message"]
        assert await client.closed()


async def test_bad_request_behind_good_ones_does_not_cost_them_their_answers() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(GET % b"/1" + GET % b"/2" + b"rubbish\r\n\r\n")
        assert (await client.answer()).json["target"] == "/1"
        assert (await client.answer()).json["target"] == "/2"
        assert (await client.answer()).status == 400
        assert await client.closed()


async def test_trailers_are_no_headers() -> None:
    seen: list[bytes] = []

    async def handler(request: Incoming) -> None:
        await request.body(10, BODIES)
        seen.extend(name for name, _ in request.headers)
        await request.send(204, [])

    async with listening(handler) as port, Raw(port) as client:
        client.send(post(CHUNKED, body=b"0\r\nauthorization: Bearer evil\r\n\r\n") + GET % b"/")
        assert (await client.answer()).status == 204
        assert (await client.answer()).status == 204
        assert seen == [b"host", b"transfer-encoding", b"host"]


async def test_offer_of_another_protocol_is_ignored_and_the_body_read() -> None:
    offer = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABk")
    chunked = post(*offer, CHUNKED, body=b"3\r\nabc\r\n0\r\n\r\n")
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(*offer, b"content-length: 3", body=b"ab"))
        client.send(b"c" + chunked + post(*offer) + chunked + GET % b"/last")
        bodies = [(await client.answer()).json["body"] for _ in range(4)]
        assert bodies == ["abc", "abc", "", "abc"]
        assert (await client.answer()).json["target"] == "/last"


async def test_absolute_targets_and_fragments_lose_what_is_not_path_or_query() -> None:
    async with listening(echo) as port, Raw(port) as client:
        for target, understood in (
            (b"http://x/a?b=c#d", "/a?b=c"),
            (b"http://x", "/"),
            (b"/a%20b?c=%20", "/a%20b?c=%20"),
            (b"/a?", "/a?"),
            (b"//x/y", "//x/y"),
        ):
            client.send(GET % target)
            assert (await client.answer()).json["target"] == understood


async def test_declared_body_above_the_bound_is_refused_before_it_is_sent() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(b"content-length: %d" % (MAX_BODY_BYTES + 1), b"expect: 100-continue"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await client.closed()


async def test_chunked_body_above_the_bound_is_refused_while_it_is_sent() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(CHUNKED))
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(64):
            client.send(chunk)
        assert (await client.answer()).status == 413
        assert await client.closed()


async def test_client_that_waits_for_100_continue_gets_it() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(b"content-length: 3", b"expect: 100-continue"))
        assert await client.head() == (100, {})
        client.send(b"abc")
        assert (await client.answer()).json["body"] == "abc"


async def test_body_that_comes_with_its_head_gets_no_100_continue() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(b"content-length: 3", b"expect: 100-continue", body=b"abc"))
        assert (await client.answer()).status == 200


async def test_handler_that_leaves_the_body_unread_ends_the_connection_with_its_answer() -> None:
    async def refuse(request: Incoming) -> None:
        await request.send(403, [], b"no")

    async with listening(refuse) as port, Raw(port) as client:
        client.send(post(b"content-length: 900000", body=b"x" * 100_000))
        answer = await client.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (403, b"no", "close")
        # The rest may still be sent: a reset could take the answer from a client that reads late.
        for _ in range(8):
            client.send(b"x" * 100_000)
            await client.writer.drain()
            await asyncio.sleep(0.01)
        client.send(GET % b"/evil")
        assert await client.reader.read(1) == b""


async def test_head_has_the_length_but_not_the_body() -> None:
    async def handler(request: Incoming) -> None:
        await request.send(200, [], b"body")

    async with listening(handler) as port, Raw(port) as client:
        client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n" + GET % b"/")
        answer = await client.answer(to_head=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "4")
        assert (await client.answer()).body == b"body"


async def test_answer_without_a_length_is_chunked() -> None:
    async with listening(_three_pieces) as port, Raw(port) as client:
        client.send(GET % b"/" + GET % b"/")
        for _ in range(2):
            answer = await client.answer()
            assert answer.headers["transfer-encoding"] == "chunked"
            assert answer.body == b"onetwothree"


async def test_answer_without_a_length_ends_with_the_connection_in_http_1_0() -> None:
    async with listening(_three_pieces) as port, Raw(port) as client:
        client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        answer = await client.answer()
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.body == b"onetwothree"


async def _three_pieces(request: Incoming) -> None:
    request.start(200, [])
    await request.write(b"one")
    await request.write(b"two")
    request.end(b"three")


async def test_http_1_0_keeps_alive_where_it_asks_to() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(b"GET /1 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert (await client.answer()).headers["connection"] == "keep-alive"
        client.send(b"GET /2 HTTP/1.0\r\n\r\n")
        answer = await client.answer()
        assert (answer.json["target"], answer.headers["connection"]) == ("/2", "close")
        assert await client.closed()


async def test_connection_ends_where_the_client_says_so() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(b"connection: close", b"content-length: 0") + GET % b"/evil")
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.closed()


async def test_answer_shorter_than_it_said_is_cut() -> None:
    async def short(request: Incoming) -> None:
        request.start(200, [(b"content-length", b"10")])
        request.end(b"short")

    async with listening(short) as port, Raw(port) as client:
        client.send(GET % b"/")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()


async def test_handler_that_fails_says_so_or_cuts_what_it_began() -> None:
    async def fails(request: Incoming) -> None:
        if request.path == "/begun":
            request.start(200, [])
            await request.write(b"part")
        raise ZeroDivisionError

    async with listening(fails) as port, Raw(port) as client:
        client.send(GET % b"/" + GET % b"/begun")
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["type"]) == (500, "server_error")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()


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
                await asyncio.sleep(0.05)  # the head for itself
                client.send(filler)
                assert (await client.answer()).status == 400


async def test_slow_headers_are_cut() -> None:
    async with listening(echo, header_timeout=0.1) as port:
        async with Raw(port) as client:
            client.send(b"GET / HTTP/1.1\r\n")
            assert (await client.answer()).status == 408
            assert await client.closed()
        async with Raw(port) as silent:
            assert await silent.closed()


async def test_slow_body_is_cut() -> None:
    async with listening(echo, body_timeout=0.1) as port, Raw(port) as client:
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

    limits = {"idle_timeout": 0.1, "header_timeout": 0.1, "body_timeout": 0.1}
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
                await request.write(b"x" * 65536)
                written += 65536
        except ClientDisconnectedError:
            ended.set()
            raise

    async with listening(pour, write_timeout=0.3) as port, Raw(port) as client:
        client.stop_reading()
        client.send(GET % b"/")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.timeout(20):
            await ended.wait()
        assert written < 32 * 1024 * 1024  # what the kernel's buffers take
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

    async with listening(pour, write_timeout=0.2, idle_timeout=0.2) as port, Raw(port) as client:
        client.send(GET % b"/")
        await client.head()
        left = size
        while left:
            left -= len(await client.reader.readexactly(min(left, 512 * 1024)))
            await asyncio.sleep(0.02)


async def test_client_that_leaves_cancels_what_waits_for_it() -> None:
    left: list[str] = []
    waiting = asyncio.Event()

    async def handler(request: Incoming) -> None:
        try:
            with request.until_gone():
                waiting.set()
                await asyncio.Event().wait()
        except ClientDisconnectedError:
            left.append("until_gone")
            with pytest.raises(ClientDisconnectedError), request.until_gone():
                pytest.fail("a block was entered for a client that has left")
            raise

    async with serving_http(handler) as (_, port):
        for leave in ("abort", "eof"):
            async with Raw(port) as client:
                client.send(GET % b"/")
                await waiting.wait()
                waiting.clear()
                if leave == "eof":
                    client.writer.write_eof()
                    assert await client.closed()
            await until(lambda: left == ["until_gone"], f"the handler noticing {leave}")
            left.clear()


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
        async with asyncio.timeout(10):
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
            with request.until_gone():
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
        assert seen[0] <= MAX_AHEAD_BYTES + 256 * 1024  # one read of the loop on top
