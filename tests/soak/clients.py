"""Clients of all kinds; each knows the correct ends of its request.

An end is `finished` (the whole answer, token by token), `failed` (an error with a message), or
`cancelled` (by the client). Everything else raises `LostError`: a wrong or cut answer, one that
never arrives, a status that does not fit the request.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum

import aiohttp

from tests.soak.light_worker import MODEL, tokens_of

PATIENCE_S = 60.0  # above every time limit of the routers
PATH = "/v1/completions"


class End(StrEnum):
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


class LostError(Exception):
    """A request's outcome that is not a correct end."""


Kind = Callable[["Client"], Awaitable[End]]


class Client:
    """Sends requests to one router, with keep-alive, one at a time."""

    def __init__(self, port: int, real_model: str | None, rng: random.Random) -> None:
        self._port = port
        self._url = f"http://127.0.0.1:{port}{PATH}"
        self._real_model = real_model
        self.rng = rng

    def kinds(self) -> list[tuple[int, Kind]]:
        """With how often."""
        found: list[tuple[int, Kind]] = [
            (30, Client.whole),
            (30, Client.stream),
            (8, Client.leaves_stream),
            (5, Client.leaves_at_once),
            (4, Client.reads_slowly),
            (3, Client.large),
            (3, Client.giant),
            (3, Client.malformed),
            (2, Client.no_http),
            (2, Client.sends_half),
            (2, Client.unknown_model),
        ]
        if self._real_model:
            found += [(10, Client.real_stream), (4, Client.real_leaves)]
        return found

    async def run(
        self, session: aiohttp.ClientSession, stop: asyncio.Event, note: Callable[[str, str], None]
    ) -> None:
        """Sends requests until `stop`; calls `note` with the kind and the end of each."""
        self._session = session
        weights, kinds = zip(*self.kinds(), strict=True)
        while not stop.is_set():
            (kind,) = self.rng.choices(kinds, weights)
            name = kind.__name__
            note(name, "sent")
            try:
                async with asyncio.timeout(PATIENCE_S):
                    note(name, await kind(self))
            except TimeoutError:
                note(name, "lost: no answer")
            except (LostError, aiohttp.ClientError, OSError, EOFError) as error:
                note(name, f"lost: {error!r}"[:300])

    # Ordinary requests.

    async def whole(self) -> End:
        prompt, count = self._prompt(), self.rng.randint(1, 40)
        async with self._post({"prompt": prompt, "max_tokens": count}) as answer:
            try:
                said = await answer.read()
            except aiohttp.ClientPayloadError:
                return End.FAILED  # cut, by its length
            if answer.status != 200:
                return _error(answer.status, said)
            if json.loads(said)["choices"][0]["text"] != "".join(tokens_of(prompt, count)):
                raise LostError(f"wrong text {said!r}")
            return End.FINISHED

    async def stream(self) -> End:
        return await self._stream(pause_s=0.0)

    async def reads_slowly(self) -> End:
        return await self._stream(pause_s=0.02)

    async def large(self) -> End:
        prompt = self._prompt() + "x" * self.rng.randint(2_000, 12_000)
        async with self._post({"prompt": prompt, "max_tokens": 2}) as answer:
            if answer.status != 200:
                return _error(answer.status, await answer.read())
            await answer.read()
            return End.FINISHED

    async def real_stream(self) -> End:
        body = {"model": self._real_model, "prompt": self._prompt()[:300], "max_tokens": 12}
        async with self._post({**body, "stream": True, "temperature": 0}) as answer:
            if answer.status != 200:
                return _error(answer.status, await answer.read())
            return _ended(await answer.read())[1]

    # Clients that leave.

    async def leaves_stream(self) -> End:
        async with self._post({**self._body(), "stream": True}) as answer:
            if answer.status != 200:
                return _error(answer.status, await answer.read())
            for _ in range(self.rng.randint(0, 5)):
                await answer.content.readany()
            answer.close()
            return End.CANCELLED

    async def real_leaves(self) -> End:
        body = {"model": self._real_model, "prompt": self._prompt()[:300], "max_tokens": 200}
        async with self._post({**body, "stream": True, "ignore_eos": True}) as answer:
            if answer.status != 200:
                return _error(answer.status, await answer.read())
            await answer.content.readany()
            answer.close()
            return End.CANCELLED

    async def leaves_at_once(self) -> End:
        asking = asyncio.ensure_future(self._ask_and_read())
        await asyncio.wait([asking], timeout=self.rng.random() * 0.05)
        if asking.done():
            return asking.result()
        asking.cancel()
        await asyncio.wait([asking])
        return End.CANCELLED

    async def sends_half(self) -> End:
        """Sends less of a body than announced, then leaves."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(_head(500) + b'{"model": "light", "pro')
        await asyncio.sleep(self.rng.random() * 0.5)
        writer.transport.abort()
        return End.CANCELLED

    # Wrong requests, which must end with their error.

    async def giant(self) -> End:
        """Larger than the limit: refused before it is sent."""
        return await self._refused(_head(1 << 40), {413})

    async def malformed(self) -> End:
        prompt = json.dumps({"model": MODEL, "prompt": self._prompt()}).encode()
        cut = self.rng.randrange(len(prompt))
        deep = b"[" * 100_000  # more values than a body may have
        bad = self.rng.choice(
            [
                prompt[:cut],
                prompt + b"}",
                b"\xff" * 50,
                deep,
                b'{"model": "light", "prompt": {"a": 1}}',
                b'{"model": "light", "prompt": "\\ud800"}',
                b'{"model": 7}',
                b"",
            ]
        )
        return await self._refused(_head(len(bad)) + bad, {413 if bad is deep else 400})

    async def no_http(self) -> End:
        noise = bytes(self.rng.randrange(256) for _ in range(self.rng.randint(1, 400)))
        return await self._refused(b"\x16\x03" + noise + b"\r\n\r\n", {400})

    async def unknown_model(self) -> End:
        body = json.dumps({"model": "nobody's", "prompt": "x"}).encode()
        return await self._refused(_head(len(body)) + body, {404})

    async def _refused(self, request: bytes, statuses: set[int]) -> End:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            status = int((await reader.readline()).split()[1])
            if status not in statuses:
                raise LostError(f"status {status} for {request[:200]!r}")
            return End.FAILED
        finally:
            writer.transport.abort()

    # Helpers.

    def _prompt(self) -> str:
        """One of a few prefixes, and a unique end."""
        return f"system {self.rng.randrange(20)} " * 60 + str(self.rng.random())

    def _body(self) -> dict[str, object]:
        return {"prompt": self._prompt(), "max_tokens": self.rng.randint(1, 120)}

    def _post(self, body: dict[str, object]) -> "aiohttp.client._RequestContextManager":
        return self._session.post(self._url, json={"model": MODEL, "temperature": 0, **body})

    async def _ask_and_read(self) -> End:
        async with self._post(self._body()) as answer:
            said = await answer.read()
            return End.FINISHED if answer.status == 200 else _error(answer.status, said)

    async def _stream(self, pause_s: float) -> End:
        prompt, count = self._prompt(), self.rng.randint(1, 120)
        async with self._post({"prompt": prompt, "max_tokens": count, "stream": True}) as answer:
            if answer.status != 200:
                return _error(answer.status, await answer.read())
            said = b""
            async for chunk in answer.content.iter_any():
                said += chunk
                await asyncio.sleep(pause_s)
        text, end = _ended(said)
        right = "".join(tokens_of(prompt, count))
        if text != right if end is End.FINISHED else not right.startswith(text):
            raise LostError(f"{text!r} is not {right!r}")
        return end


def _head(length: int) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (PATH.encode(), length)


def _error(status: int, said: bytes) -> End:
    """Raises LostError if the error has no message."""
    try:
        message = json.loads(said)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        raise LostError(f"status {status} says {said[:200]!r}") from None
    if status not in (429, 503, 504) or not message:
        raise LostError(f"status {status}: {message}")
    return End.FAILED


def _ended(said: bytes) -> tuple[str, End]:
    """A stream's text so far, and its end."""
    text, finished = "", False
    for event in said.split(b"\n\n"):
        data = event.removeprefix(b"data: ")
        if data == b"[DONE]":
            if not finished:
                raise LostError("done without a finish reason")
            return text, End.FINISHED
        if not data:
            continue
        body = json.loads(data)
        if error := body.get("error"):
            if not error["message"]:
                raise LostError("an error without words")
            return text, End.FAILED
        for choice in body["choices"]:
            text += choice["text"]
            finished |= choice["finish_reason"] is not None
    raise LostError(f"a stream without an end: …{said[-200:]!r}")
