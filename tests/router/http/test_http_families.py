"""A router listens on all addresses, of IPv4 and of IPv6."""

import asyncio
import json

import pytest

from pando_fleet.http.server.incoming import Incoming
from tests.router.http.http_requests import GET
from tests.router.http.http_world import serving_http


@pytest.mark.parametrize("share_port", [False, True])
async def test_clients_of_both_families_are_served_and_named(share_port: bool) -> None:
    peers: list[str] = []

    async def who(request: Incoming) -> None:
        assert request.peer is not None
        peers.append(request.peer[0])
        await request.send(200, [], json.dumps(request.peer).encode())

    async with serving_http(who, host="::", share_port=share_port) as (_, port):
        for host in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(GET % b"/")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
    assert peers == ["127.0.0.1", "::1"]
