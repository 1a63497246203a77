"""The server's side of HTTP/1.1: requests as raw bytes."""

import asyncio
import socket

import pytest

from pando_fleet.http.errors import ClientDisconnectedError
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.limits import MAX_AHEAD_REQUESTS
from tests.router.http.http_requests import CHUNKED, GET, post
from tests.router.http.http_world import BODIES, MAX_BODY_BYTES, Raw, echo, listening
from tests.router.world import until
from tests.waiting import PATIENCE_S


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
        # The client may still send the rest: a reset could destroy an answer that it has not read.
        for _ in range(8):
            client.send(b"x" * 100_000)
            await client.writer.drain()
            await asyncio.sleep(0.01)
        client.send(GET % b"/evil")
        assert await client.reader.read(1) == b""


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_client_that_leaves_is_noticed_whatever_the_size_of_its_body(size: int) -> None:
    """The end of a body, in a piece as large as is read at once, is not the next request: the
    server reads on, so that it notices the end."""
    begun, complete, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(request: Incoming) -> None:
        begun.set()
        assert len(await request.body(MAX_BODY_BYTES, BODIES)) == size
        complete.set()
        try:
            with request.until_gone:
                await asyncio.get_running_loop().create_future()
        except ClientDisconnectedError:
            left.set()

    async with listening(wait) as port:
        async with Raw(port) as client:
            client.send(post(b"content-length: %d" % size))
            await begun.wait()
            client.send(b"x" * size)
            await complete.wait()
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()
