"""Sends a generation as an HTTP answer, whole or as server-sent events, in the form of any API.

Nothing is sent before the first output, so a rejected request gets its proper status, and the
headers tell the truth about the cache. Leaving, for whatever reason, closes the generation.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pando_worker.server.errors import ApiError, error_body
from pando_worker.server.generation import Delta, Finish


@dataclass(slots=True)
class Result:
    """All deltas so far."""

    prompt_tokens: int
    cached_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, delta: Delta) -> None:
        self.cached_tokens = delta.cached_tokens
        self.token_ids += delta.token_ids
        self.texts.append(delta.text)
        self.finish = delta.finish


class Form(Protocol):
    """An API's JSON for a generation."""

    def whole(self, result: Result) -> object:
        """The body of an answer that is not streamed."""

    def events(self, delta: Delta, result: Result) -> list[object]:
        """The events that a delta, already part of `result`, makes in a stream; maybe none."""


class Answer(Response):
    def __init__(
        self,
        deltas: AsyncGenerator[Delta, None],
        form: Form,
        *,
        prompt_tokens: int,
        stream: bool,
    ) -> None:
        super().__init__()
        self._deltas = deltas
        self._form = form
        self._result = Result(prompt_tokens)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._deltas) as deltas:
            if self._stream:
                await self._send_events(deltas, send)
            else:
                await self._send_whole(deltas, send)

    async def _send_whole(self, deltas: AsyncGenerator[Delta, None], send: Send) -> None:
        async for delta in deltas:
            self._result.add(delta)
        body = msgspec.json.encode(self._form.whole(self._result))
        await self._start(
            send, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
        )
        await send({"type": "http.response.body", "body": body})

    async def _send_events(self, deltas: AsyncGenerator[Delta, None], send: Send) -> None:
        started = False
        body = b""
        try:
            async for delta in deltas:
                self._result.add(delta)
                if not started:
                    started = True
                    await self._start(
                        send,
                        (b"content-type", b"text/event-stream; charset=utf-8"),
                        (b"cache-control", b"no-cache"),
                    )
                events = self._form.events(delta, self._result)
                body = b"".join(_event(msgspec.json.encode(event)) for event in events)
                if body and not delta.finish:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": body + _event(b"[DONE]")})
        except ApiError as error:
            if not started:
                raise
            await send({"type": "http.response.body", "body": _event(error_body(error))})

    async def _start(self, send: Send, *headers: tuple[bytes, bytes]) -> None:
        result = self._result
        cache = (
            (b"x-pando-prompt-tokens", b"%d" % result.prompt_tokens),
            (b"x-pando-cached-tokens", b"%d" % result.cached_tokens),
        )
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, *cache]})


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
