"""The world of router tests: a real router, and replicas on real sockets that a test controls.

async with fleet(redis_url, "a") as (router, [a]):
    answer = await router.post("/v1/completions", {"model": "m", "prompt": "hello"})
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from pando_fleet.redis.client import FleetUnavailable, connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.app import running_router, server_of
from pando_router.configuration.settings import RouterSettings
from tests.router.http.http_world import Said
from tests.waiting import PATIENCE_S, pauses

BEAT_S = 0.1
SWEEP_S = 0.05  # of time limits

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_incarnations = itertools.count(1)


async def until(condition: Callable[[], object], what: str) -> None:
    """Waits until `condition()` is true; an awaitable that it returns is awaited first."""
    deadline = time.monotonic() + PATIENCE_S
    for pause in pauses():
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(pause)


@dataclass(frozen=True, slots=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


class Replica:
    """A replica of the fleet without an engine: `answer` handles each request."""

    def __init__(
        self,
        redis_url: str,
        name: str,
        *,
        model: str = "m",
        pool: str = "default",
        port: int = 0,  # 0: any
        **beat: Any,
    ) -> None:
        self.name = name
        self.pool = pool
        self.answer: Handler = self.say_name
        self.health: Handler = self.say_name  # of the router's checks, which are not `received`
        self.readiness: Handler = self.say_name  # the same
        self.received: list[Received] = []
        self.cancelled = 0
        self._redis = connect(redis_url)
        self._registry = Registry(self._redis)
        self._model = model
        self._extra = beat
        self.state = ReplicaState.READY
        self.port = port

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        await self._runner.setup()
        await self.listen()
        self.heart = Heartbeat(
            replica=self.name,
            incarnation=f"i{next(_incarnations)}",
            url=f"http://127.0.0.1:{self.port}",
            model=self._model,
            state=self.state,
            **self._extra,
        )
        with suppress(FleetUnavailable):
            await self._registry.beat(self.pool, self.heart)
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._beating.cancel()
        with suppress(asyncio.CancelledError):
            await self._beating
        await self._runner.cleanup()
        await self._redis.aclose()

    async def listen(self) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def refuse(self) -> None:
        """Like a killed process: connections are refused, but the last heartbeat still looks
        fresh."""
        await self._site.stop()
        server = self._runner.server
        assert server is not None
        for connection in server.connections:
            assert connection.transport is not None
            connection.transport.abort()

    async def say(self, **changes: Any) -> None:
        """Changes the heartbeat and sends it now."""
        self.heart = replace(self.heart, **changes)
        await self._registry.beat(self.pool, self.heart)

    def pause(self) -> None:
        """Stops the periodic heartbeats."""
        self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            with suppress(FleetUnavailable):
                await self._registry.beat(self.pool, self.heart)
            await asyncio.sleep(BEAT_S)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/healthz":
            return await self.health(request)
        if request.path == "/readyz":
            return await self.readiness(request)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path_qs, headers, await request.read()))
        try:
            return await self.answer(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled += 1
            raise

    async def say_name(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"replica": self.name}, headers={"x-engine": "test"})


def status(code: int, **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": f"{code}"}}, status=code, headers=headers)

    return answer


def cached(cached_tokens: int, prompt_tokens: int) -> Handler:
    return status(
        200,
        **{
            "x-pando-cached-tokens": str(cached_tokens),
            "x-pando-prompt-tokens": str(prompt_tokens),
        },
    )


async def reset(request: web.Request) -> web.StreamResponse:
    """Resets the connection before any answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def never(request: web.Request) -> web.StreamResponse:
    """Accepts the request and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


class Stream:
    """An answer in steps: `put` sends bytes, `end` ends it, `die` cuts the connection."""

    def __init__(self, content_type: str = "text/event-stream") -> None:
        self._steps: asyncio.Queue[bytes | str] = asyncio.Queue()
        self._content_type = content_type
        self.started = asyncio.Event()

    def __len__(self) -> int:
        """Steps not yet taken."""
        return self._steps.qsize()

    def put(self, chunk: bytes) -> None:
        self._steps.put_nowait(chunk)

    def end(self) -> None:
        self._steps.put_nowait("end")

    def die(self) -> None:
        self._steps.put_nowait("die")

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": self._content_type})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.started.set()
        while True:
            step = await self._steps.get()
            if isinstance(step, bytes):
                await response.write(step)
            elif step == "end":
                await response.write_eof()
                return response
            else:
                assert request.transport is not None
                request.transport.close()
                return response


@dataclass(frozen=True, slots=True)
class Answer(Said):
    @property
    def replica(self) -> str:
        return self.headers["x-pando-replica"]


class RouterClient:
    """A router on a real socket and a client of it, with an API key if `key` is given."""

    def __init__(self, port: int, session: aiohttp.ClientSession, key: str = "") -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.session = session
        self._key = {"authorization": f"Bearer {key}"} if key else {}

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", path, data=data, headers=headers)

    async def get(self, path: str) -> Answer:
        return await self.request("GET", path)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        given = self._key | options.pop("headers", {})
        async with self.session.request(
            method, self.url + path, headers=given, **options
        ) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, await response.read())

    async def metric(self, sample: str) -> float:
        """The value of a sample, with its labels, such as `..._retries_total{pool="default"}`."""
        for line in (await self.get("/metrics")).body.decode().splitlines():
            if line.startswith(sample + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def ready(self, *names: str, state: str = "ready") -> None:
        """Waits until the router sees these replicas in this state."""

        async def seen() -> bool:
            pools = (await self.get("/fleet")).json["pools"].values()
            states = {r["replica"]: r["state"] for replicas in pools for r in replicas}
            return all(states.get(name) == state for name in names)

        await until(seen, f"{names} being {state}")


async def redis_is(router: RouterClient, state: str) -> None:
    async def said() -> bool:
        health = await router.get("/healthz")
        assert health.status == 200
        return bool(health.json["redis"] == state)

    await until(said, f"redis being {state}")


@asynccontextmanager
async def serving(
    redis_url: str, *, key: str = "", address: str = "127.0.0.1", **settings: Any
) -> AsyncIterator[RouterClient]:
    """A router in this event loop, listening on a free port. By default its timeouts are long: on a
    busy machine the event loop may pause for two seconds, and short timeouts of connections to
    Redis and replicas would expire."""
    patient: dict[str, Any] = {"placement_timeout": 5.0, "connect_timeout": 10.0}
    router_settings = RouterSettings(redis=redis_url, **patient | settings)
    async with running_router(router_settings, sweep_s=SWEEP_S) as router:
        server = server_of(router, sweep_s=SWEEP_S)
        port = await server.listen(address, 0)
        try:
            async with aiohttp.ClientSession(
                auto_decompress=False, timeout=aiohttp.ClientTimeout(total=PATIENCE_S)
            ) as session:
                yield RouterClient(port, session, key)
        finally:
            await server.close(1.0)


@asynccontextmanager
async def fleet(
    redis_url: str, *names: str, **settings: Any
) -> AsyncIterator[tuple[RouterClient, list[Replica]]]:
    """A router like `serving`'s, and its replicas with these names, which it knows to be ready."""
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(Replica(redis_url, name)) for name in names]
        router = await stack.enter_async_context(serving(redis_url, **settings))
        await router.ready(*names)
        yield router, replicas


def completion(prompt: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": prompt, **more}


@asynccontextmanager
async def streaming(
    router: RouterClient, replica: Replica
) -> AsyncIterator[tuple[Stream, aiohttp.ClientResponse]]:
    """A chat that the replica has begun to stream: one event has arrived."""
    replica.answer = stream = Stream()
    stream.put(b"data: 1\n\n")
    url = router.url + "/v1/chat/completions"
    async with router.session.post(url, json=chat("hi", stream=True)) as response:
        assert await response.content.readany() == b"data: 1\n\n"
        yield stream, response


def chat(*contents: str, **more: Any) -> dict[str, Any]:
    """A conversation whose turns alternate between user and assistant."""
    roles = itertools.cycle(("user", "assistant"))
    messages = [
        {"role": role, "content": text} for role, text in zip(roles, contents, strict=False)
    ]
    return {"model": "m", "messages": messages, **more}
