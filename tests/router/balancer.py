"""One address for several routers, like a Kubernetes Service: a new connection goes to a router
that answered the last probe of /readyz with 200; existing connections are left alone."""

import asyncio
import itertools
from typing import Self

import aiohttp

PROBE_S = 0.1


class Balancer:
    def __init__(self) -> None:
        self.ready: list[int] = []  # ports
        self._known: list[int] = []
        self._turns = itertools.count()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=5.0),
        )
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._probing.cancel()
        self._server.close()
        await self._session.close()

    def add(self, port: int) -> None:
        self._known.append(port)

    def remove(self, port: int) -> None:
        self._known.remove(port)

    async def _probe(self) -> None:
        while True:
            known = list(self._known)
            self.ready = [port for port in known if await self._is_ready(port)]
            await asyncio.sleep(PROBE_S)

    async def _is_ready(self, port: int) -> bool:
        try:
            async with self._session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self.ready[next(self._turns) % len(self.ready)]
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
