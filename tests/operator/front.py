"""A proxy before the API server that a test can make slow, refuse, give wrong answers or hang
up."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from tests.operator.api_server import ApiServer

Matches = Callable[[web.Request], bool]


@dataclass(slots=True)
class Fault:
    """A fault for matching requests, `times` of them (-1: all)."""

    matches: Matches
    status: int = 0  # answer with this status, without forwarding; 0: forward
    body: str = ""
    delay_s: float = 0.0
    hang_up: bool = False  # close the connection without an answer, without forwarding
    is_lost: bool = False  # forward, then close the connection without an answer
    times: int = -1
    hits: int = 0

    def takes(self, request: web.Request) -> bool:
        if self.times == 0 or not self.matches(request):
            return False
        self.times -= 1
        self.hits += 1
        return True


@dataclass(slots=True)
class Front:
    url: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)  # "PATCH /apis/…"
    _streams: set[web.StreamResponse] = field(default_factory=set)

    def break_watches(self) -> None:
        """Cuts each open watch in the middle."""
        for stream in self._streams:
            transport = stream._req.transport if stream._req else None
            if transport is not None:
                transport.close()

    def writes(self, text: str = "") -> list[str]:
        return [one for one in self.seen if not one.startswith("GET") and text in one]


@asynccontextmanager
async def running_front(server: ApiServer) -> AsyncIterator[Front]:
    context = ssl.create_default_context(cafile=server.folder / "ca.crt")
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as client:
        front = Front("")

        # The server would wait for running requests, and watches last a minute.
        handling: set[asyncio.Task[object]] = set()

        async def handle(request: web.Request) -> web.StreamResponse:
            task = asyncio.current_task()
            assert task is not None
            handling.add(task)
            try:
                return await answer(request)
            finally:
                handling.discard(task)

        async def answer(request: web.Request) -> web.StreamResponse:
            front.seen.append(f"{request.method} {request.path_qs}")
            for fault in front.faults:
                if fault.takes(request):
                    await asyncio.sleep(fault.delay_s)
                    if fault.hang_up and request.transport is not None:
                        request.transport.close()
                    if fault.is_lost and request.transport is not None:
                        async with _forwarded(client, server.url, request) as lost:
                            await lost.read()
                        request.transport.close()
                        return web.Response(status=500)
                    if fault.status or fault.hang_up:
                        return web.Response(status=fault.status or 500, text=fault.body)
            return await _forward(client, server.url, request, front)

        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{rest:.*}", handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        front.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield front
        finally:
            for task in handling:
                task.cancel()
            await asyncio.gather(*handling, return_exceptions=True)
            await runner.cleanup()


@asynccontextmanager
async def _forwarded(
    client: aiohttp.ClientSession, url: str, request: web.Request
) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {
        name: value
        for name, value in request.headers.items()
        if name.lower() not in ("host", "content-length", "transfer-encoding", "connection")
    }
    body = await request.read()
    async with client.request(
        request.method, url + request.path_qs, headers=headers, data=body or None
    ) as answer:
        yield answer


async def _forward(
    client: aiohttp.ClientSession, url: str, request: web.Request, front: Front
) -> web.StreamResponse:
    async with _forwarded(client, url, request) as answer:
        response = web.StreamResponse(status=answer.status)
        response.content_type = answer.content_type
        await response.prepare(request)
        is_watch = "watch=true" in request.path_qs
        if is_watch:
            front._streams.add(response)
        try:
            async for piece in answer.content.iter_any():
                await response.write(piece)
        except ConnectionError:
            pass  # the test cut it, or the client has gone
        finally:
            front._streams.discard(response)
        return response
