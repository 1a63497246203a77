"""A client inside the cluster: streams chats from the router's Service and counts every outcome.

It runs as `python client.py ROUTER_URL` in a pod of the operator's image, which has aiohttp, and is
controlled over HTTP: `POST /load` sets the number of clients and their requests, `GET /streams`
lists the ended streams, `POST /ask` sends one request and returns its answer.

A stream is *finished* when its end (`[DONE]`) has arrived, *refused* when a try got an error before
its first event, and *cut* when it ended or broke after its first event without `[DONE]`. Only
refused tries are repeated, like clients do, a bounded number of times; then the stream has
*failed*.
"""

import asyncio
import base64
import json
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

PORT = 8080
KEPT = 100_000  # ended streams that are kept
TRY_AGAIN_S = 0.25
QUIET_S = 60.0  # without a byte a stream counts as cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests of `clients` clients; each runs one stream at a time."""

    clients: int = 0
    model: str = ""
    words: int = 100  # of a prompt
    prefixes: int = 4  # different prefixes, half a prompt long
    max_tokens: int = 100
    tries: int = 5
    pause_s: float = 0.0  # between a client's streams
    asks: list[list[str]] = field(
        default_factory=list
    )  # model and prompt, in turn, if there are any


@dataclass(slots=True, kw_only=True)
class Stream:
    started: float  # seconds since 1970
    outcome: str = "failed"
    refused: int = 0
    first_s: float | None = None  # from the first try to the first event
    longest_gap_s: float = 0.0  # between two events
    seconds: float = 0.0
    events: int = 0
    replica: str = ""
    ask: list[str] = field(default_factory=list)  # the one of `asks`
    text: str = ""  # its answer, if it is one of `asks`
    errors: list[str] = field(default_factory=list)


class Clients:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._load = Load()
        self._tasks: list[asyncio.Task[None]] = []
        self._streams: deque[Stream] = deque(maxlen=KEPT)
        self._ended = 0
        self._asked = 0
        self._running: list[Stream] = []

    def set(self, load: Load) -> None:
        """Surplus clients end after their current stream."""
        self._load = load
        self._tasks = [task for task in self._tasks if not task.done()]
        for index in range(len(self._tasks), load.clients):
            self._tasks.append(asyncio.create_task(self._client(index)))

    def told(self, since: int) -> dict[str, Any]:
        """The ended streams from number `since` on."""
        first = self._ended - len(self._streams)
        streams = list(self._streams)[max(0, since - first) :]
        return {
            "ended": self._ended,
            "running": len(self._running),
            "begun": sum(stream.events > 0 for stream in self._running),
            "streams": [asdict(stream) for stream in streams],
        }

    async def _client(self, index: int) -> None:
        while index < self._load.clients:
            load, stream = self._load, Stream(started=time.time())
            self._running.append(stream)
            await self._run(stream, load)
            self._running = [other for other in self._running if other is not stream]
            self._streams.append(stream)
            self._ended += 1
            await asyncio.sleep(load.pause_s)

    async def _run(self, stream: Stream, load: Load) -> None:
        """Fills the stream in."""
        began = time.perf_counter()
        model, prompt = load.model, ""
        if load.asks:
            stream.ask = load.asks[self._asked % len(load.asks)]
            self._asked += 1
            model, prompt = stream.ask
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt or words(load)}],
            "max_tokens": load.max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        for _ in range(load.tries):
            try:
                await self._try(body, stream, began)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                stream.errors.append(f"{type(error).__name__}: {error}"[:300])
                if stream.events:
                    stream.outcome = "cut"
            if stream.outcome != "failed":
                break
            stream.refused += 1
            await asyncio.sleep(TRY_AGAIN_S)
        stream.seconds = time.perf_counter() - began

    async def _try(self, body: dict[str, Any], stream: Stream, began: float) -> None:
        async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                stream.errors.append(f"{answer.status}: {(await answer.text())[:300]}")
                return
            stream.replica = answer.headers.get("x-pando-replica", "")
            last = began
            async for line in answer.content:
                if not line.startswith(b"data:"):
                    continue
                now = time.perf_counter()
                if stream.first_s is None:
                    stream.first_s = now - began
                else:
                    stream.longest_gap_s = max(stream.longest_gap_s, now - last)
                last = now
                stream.events += 1
                data = line[5:].strip()
                if data == b"[DONE]":
                    stream.outcome = "finished"
                    return
                if "error" in (event := json.loads(data)):
                    stream.errors.append(str(event["error"])[:300])
                    stream.outcome = "cut" if stream.events > 1 else "failed"
                    return
                if stream.ask:
                    stream.text += "".join(
                        choice["delta"].get("content") or "" for choice in event["choices"]
                    )
            stream.outcome = "cut" if stream.events else "failed"
            stream.errors.append("it ended without [DONE]")

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """One request: its path, body, headers, seconds to wait. With a file, in base64, the body's
        fields are a form's."""
        timeout = aiohttp.ClientTimeout(total=body.get("timeout_s", 60))
        began = time.perf_counter()
        async with self._session.post(
            self._url + body["path"],
            **(_form(body["body"], body["file"]) if "file" in body else {"json": body["body"]}),
            headers=body.get("headers"),
            timeout=timeout,
        ) as answer:
            text = await answer.text()
            return {
                "status": answer.status,
                "headers": {name.lower(): value for name, value in answer.headers.items()},
                "text": text,
                "seconds": time.perf_counter() - began,
            }


def _form(fields: dict[str, str], file: str) -> dict[str, Any]:
    form = aiohttp.FormData(fields, default_to_multipart=True)
    form.add_field("file", base64.b64decode(file), filename="file")
    return {"data": form}


def words(load: Load, choose: random.Random = random.Random()) -> str:  # noqa: B008
    """A prompt: one of a few prefixes, and an end of its own."""
    prefix = random.Random(choose.randrange(load.prefixes))
    half = load.words // 2
    return " ".join(
        [
            *(f"word{prefix.randrange(1000)}" for _ in range(half)),
            *(f"word{choose.randrange(1000)}" for _ in range(load.words - half)),
        ]
    )


async def serve(url: str) -> web.Application:
    application = web.Application()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=QUIET_S)
    # Connections are not kept, so that the Service places each request like a new client's.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    session = aiohttp.ClientSession(timeout=timeout, connector=connector)
    clients = Clients(session, url)

    async def load(request: web.Request) -> web.Response:
        clients.set(Load(**await request.json()))
        return web.json_response({})

    async def streams(request: web.Request) -> web.Response:
        return web.json_response(clients.told(int(request.query.get("since", "0"))))

    async def ask(request: web.Request) -> web.Response:
        try:
            return web.json_response(await clients.ask(await request.json()))
        except (aiohttp.ClientError, TimeoutError) as error:
            return web.json_response({"status": 0, "text": f"{type(error).__name__}: {error}"})

    application.add_routes(
        [web.post("/load", load), web.get("/streams", streams), web.post("/ask", ask)]
    )
    return application


def main(arguments: Sequence[str]) -> None:
    web.run_app(serve(arguments[0]), port=PORT, print=lambda _: None, access_log=None)


if __name__ == "__main__":
    main(sys.argv[1:])
