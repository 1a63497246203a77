"""The least work of a proxy in Python: it only parses HTTP on both sides.

`bench.router.data_path` runs it as the router's limit: alone, and with one PING to Redis before
each request, the least that any decision in a shared Redis takes.

    python -m bench.router.routing.bare PORT REDIS_PORT UPSTREAM_PORT...      (REDIS_PORT 0: none)
"""

import asyncio
import sys
from collections import deque
from functools import partial
from itertools import cycle
from typing import cast

import hiredis
import httptools
import uvloop

_PING = b"*1\r\n$4\r\nPING\r\n"


class _Socket(asyncio.Protocol):
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)


class Redis(_Socket):
    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._waiting: deque[Client] = deque()

    def ask(self, client: "Client") -> None:
        self._waiting.append(client)
        self.transport.write(_PING)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._reader.gets() is not False:
            self._waiting.popleft().forward()


class Replica(_Socket):
    """Takes one request at a time."""

    def __init__(self, idle: "deque[Replica]") -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self._client: Client | None = None
        self._complete = False

    def send(self, data: bytes, client: "Client") -> None:
        self._client = client
        client.replica = self
        self.transport.write(data)

    def leave(self) -> None:
        """The client has disconnected."""
        if self._client is not None:
            self.transport.abort()

    def on_message_complete(self) -> None:
        self._complete = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        client = self._client
        if client is None:
            return
        client.transport.write(data)
        if self._complete:
            self._complete, self._client, client.replica = False, None, None
            if self._parser.should_keep_alive():
                self._idle.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)


class Client(_Socket):
    """Answers are in order, because each client waits for one before it sends the next request."""

    def __init__(self, proxy: "Proxy") -> None:
        self.proxy = proxy
        self._parser = httptools.HttpRequestParser(self)
        self._request = b""
        self._complete = False
        self.replica: Replica | None = None

    def connection_lost(self, error: Exception | None) -> None:
        if self.replica is not None:
            self.replica.leave()

    def on_message_complete(self) -> None:
        self._complete = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._request += data
        if self._complete:
            self._complete = False
            if self.proxy.redis is None:
                self.forward()
            else:
                self.proxy.redis.ask(self)

    def forward(self) -> None:
        request, self._request = self._request, b""
        if self.proxy.idle:
            self.proxy.idle.popleft().send(request, self)
        else:
            task = asyncio.create_task(self._connect_and_send(request))
            self.proxy.connecting.add(task)
            task.add_done_callback(self.proxy.connecting.discard)

    async def _connect_and_send(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        port = next(self.proxy.ports)
        make = partial(Replica, self.proxy.idle)
        _, replica = await loop.create_connection(make, "127.0.0.1", port)
        replica.send(request, self)


class Proxy:
    def __init__(self, ports: list[int], redis: Redis | None) -> None:
        self.ports = cycle(ports)
        self.redis = redis
        self.idle: deque[Replica] = deque()
        self.connecting: set[asyncio.Task[None]] = set()


async def _serve(port: int, redis_port: int, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    redis = None
    if redis_port:
        _, redis = await loop.create_connection(Redis, "127.0.0.1", redis_port)
    proxy = Proxy(ports, redis)
    server = await loop.create_server(lambda: Client(proxy), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), [int(port) for port in sys.argv[3:]]))
