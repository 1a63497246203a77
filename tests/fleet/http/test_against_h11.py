"""The server's reading of requests against h11's, on mutated ones: both agree where a request ends
and what it says, or the server refuses it. Otherwise one connection could hold different requests
for two servers (request smuggling).
"""

import asyncio
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import h11
import pytest

from pando_fleet.current import Current
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.incoming_body import Channel
from pando_fleet.http.server.limits import ClientLimits
from pando_fleet.http.server.request_reader import RequestReader

REQUESTS = 10_000
SEEDS = [
    b"GET /a?b=c HTTP/1.1\r\nhost: x\r\naccept: */*\r\n\r\n",
    b"POST /v1 HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello",
    b"POST /v1 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n3;a=b\r\nyou\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n0\r\nx-trailer: y\r\n\r\n",
    b"POST / HTTP/1.0\r\ncontent-length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, te\r\ncontent-length: 0\r\n\r\n",
]
PIECES = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\0",
        b":",
        b";",
        b",",
        b"0",
        b"+5",
        b"0x5",
        b"\xff",
        b"-1",
    ),
    *(b"content-length: 5\r\n", b"Content-Length: 6\r\n", b"transfer-encoding: chunked\r\n"),
    *(b"transfer-encoding: gzip, chunked\r\n", b"transfer-encoding : chunked\r\n", b"host: y\r\n"),
    *(
        b" folded\r\n",
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"chunked",
        b"content-length:5,5\r\n",
        b"x:\x0by\r\n",
    ),
    b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n",
]


@dataclass(frozen=True)
class Read:
    """One request as a server reads it; header names in lower case, values without outer blanks."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def mutated(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(SEEDS) + rng.choice([b"", rng.choice(SEEDS)]))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at:at] = rng.choice(PIECES)
            case 1:
                del data[at : at + rng.randint(1, 4)]
            case 2:
                data[at] = rng.randrange(256)
            case _:  # at the beginning of a line
                at = data.find(b"\n", at) + 1
                data[at:at] = rng.choice(PIECES)
    return bytes(data)


def by_h11(data: bytes) -> tuple[list[Read], bool]:
    """The complete requests, and whether something was refused."""
    found: list[Read] = []
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(data)
    try:
        while (request := server.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if not isinstance(request, h11.Request):
                break
            body = b""
            while isinstance(event := server.next_event(), h11.Data):
                body += event.data
            if not isinstance(event, h11.EndOfMessage):
                break
            headers = tuple((name, value.strip(b" \t")) for name, value in request.headers)
            found.append(Read(request.method, request.target, headers, body))
            server.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            server.send(h11.EndOfMessage())
            if server.our_state is not h11.DONE or server.their_state is not h11.DONE:
                break
            server.start_next_cycle()
    except h11.RemoteProtocolError:
        return found, True
    return found, False


async def by_server(data: bytes) -> tuple[list[Read], bool]:
    channel: Any = SimpleNamespace(until_gone=None, gone=False, peer=None, failure=None)
    reader = RequestReader(cast(Channel, channel), Current(ClientLimits()))
    reader.feed(data)
    bodies = Bodies(Current(1 << 30), Current(9))
    found = []
    for incoming in reader.requests:
        if not incoming.body_complete:
            break
        body = await incoming.body(1 << 20, bodies)
        headers = tuple((name, value.strip(b" \t")) for name, value in incoming.headers)
        found.append(Read(incoming.method.encode(), incoming.target, headers, body))
    return found, reader.failure is not None


_BLANKS = re.compile(
    rb"^[\r\n]+|(?<=\r\n\r\n)[\r\n]+(?=(?:GET|POST) )|(?<=GET) +(?= )|(?<=POST) +(?= )"
)


def tolerated(data: bytes) -> bytes:
    """Without what RFC 9112 allows a server to ignore (2.2, 3), and h11 refuses: ends of lines
    before a request, and several blanks after its method."""
    return _BLANKS.sub(b"", data)


def differences(count: int) -> Iterator[tuple[bytes, Any, Any]]:
    rng = random.Random(38)
    with asyncio.Runner() as runner:
        for _ in range(count):
            data = mutated(rng)
            theirs, ours = by_h11(data), runner.run(by_server(data))
            # Every request that the server reads, h11 reads too, and the same.
            if ours[0] != theirs[0][: len(ours[0])]:
                theirs = by_h11(tolerated(data))
            if ours[0] != theirs[0][: len(ours[0])]:
                yield data, ours, theirs


def test_requests_are_read_as_h11_reads_them_or_refused() -> None:
    for data, ours, theirs in differences(REQUESTS):
        pytest.fail(f"{data!r}\nis read as {ours}\nand by h11 as {theirs}")
