"""Sends a generation as an HTTP answer, whole or as server-sent events, in any API's form.

Nothing is sent before the first output, so a rejected request gets the right status and the headers
report the cached tokens correctly. However the answer ends, its generation is closed.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pando_worker.messages import TokenLogprob
from pando_worker.server.errors import ApiError
from pando_worker.server.generation import Job
from pando_worker.server.protocol.resume import RESUMED
from pando_worker.server.text.reader import Delta, Finish, ScoredToken


@dataclass(slots=True)
class ChoiceResult:
    """One choice: all its deltas so far, or since the last `forget`."""

    prompt: int  # index of the prompt that it continues
    prompt_ids: list[int]
    cached_tokens: int | None = None  # None: no delta yet
    completion_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    finish: Finish | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    scored: list[ScoredToken] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, delta: Delta) -> None:
        self.cached_tokens = delta.cached_tokens
        self.completion_tokens += len(delta.token_ids)
        self.token_ids += delta.token_ids
        self.texts.append(delta.text)
        self.finish = delta.finish
        self.logprobs += delta.logprobs
        self.scored += delta.scored
        self.prompt_logprobs += delta.prompt_logprobs

    def forget(self) -> None:
        """Drop everything but the counts and the finish."""
        for part in (self.token_ids, self.texts, self.logprobs, self.scored, self.prompt_logprobs):
            part.clear()


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of a whole request. A prompt counts once, even if several choices continue it."""

    prompt: int
    cached: int
    completion: int

    @classmethod
    def of(cls, results: Sequence[ChoiceResult]) -> "TokenCounts":
        prompts = {result.prompt: len(result.prompt_ids) for result in results}
        cached: dict[int, int] = {}
        for result in results:
            if (found := result.cached_tokens) is not None:
                # Later choices find the first one's prompt in the cache, so take the minimum.
                cached[result.prompt] = min(found, cached.get(result.prompt, found))
        completion = sum(result.completion_tokens for result in results)
        return cls(sum(prompts.values()), sum(cached.values()), completion)


class Form(Protocol):
    """An API's JSON for a generation. Results are in the order of the job's choices."""

    repeats: ClassVar[bool]  # whether each event of a stream repeats everything before it
    named: ClassVar[bool]  # whether events are named by their `type`; else [DONE] ends a stream

    def whole(self, results: list[ChoiceResult]) -> object:
        """The body of an unstreamed answer."""

    def events(self, delta: Delta, results: list[ChoiceResult]) -> list[object]:
        """The stream's events for a delta that `results` already includes; may be empty."""

    def failure(self, error: ApiError) -> object:
        """The last event of a stream that failed."""


class Answer(Response):
    def __init__(
        self, deltas: AsyncGenerator[Delta, None], form: Form, job: Job, *, stream: bool
    ) -> None:
        super().__init__()
        self._deltas = deltas
        self._form = form
        self._stream = stream
        self._one_prompt = len(job.prompts) == 1
        self._resumed = len(job.resumed)
        self._unfinished = len(job.orders)
        self._results = [
            ChoiceResult(prompt, ids)
            for prompt, ids in enumerate(job.prompts)
            for _ in range(job.samples)
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._deltas) as deltas:
            if self._stream:
                await self._send_events(deltas, send)
            else:
                await self._send_whole(deltas, send)

    async def _send_whole(self, deltas: AsyncGenerator[Delta, None], send: Send) -> None:
        async for delta in deltas:
            self._add(delta)
        body = msgspec.json.encode(self._form.whole(self._results))
        await self._start(
            send, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
        )
        await send({"type": "http.response.body", "body": body})

    async def _send_events(self, deltas: AsyncGenerator[Delta, None], send: Send) -> None:
        started = False
        body = b""
        try:
            async for delta in deltas:
                self._add(delta)
                if not started:
                    started = True
                    await self._start(
                        send,
                        (b"content-type", b"text/event-stream; charset=utf-8"),
                        (b"cache-control", b"no-cache"),
                    )
                events = self._form.events(delta, self._results)
                body = b"".join(map(self._event, events))
                if not self._form.repeats:
                    self._results[delta.index].forget()
                if body and self._unfinished:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            done = b"" if self._form.named else b"data: [DONE]\n\n"
            await send({"type": "http.response.body", "body": body + done})
        except ApiError as error:
            if not started:
                raise
            last = self._event(self._form.failure(error))
            await send({"type": "http.response.body", "body": last})

    def _event(self, event: object) -> bytes:
        data = msgspec.json.encode(event)
        if not self._form.named:
            return b"data: " + data + b"\n\n"
        return b"event: " + _name_of(event) + b"\ndata: " + data + b"\n\n"

    def _add(self, delta: Delta) -> None:
        self._results[delta.index].add(delta)
        self._unfinished -= delta.finish is not None

    async def _start(self, send: Send, *headers: tuple[bytes, bytes]) -> None:
        if self._one_prompt or not self._unfinished:  # else the count is incomplete
            counts = TokenCounts.of(self._results)
            headers += (
                (b"x-pando-prompt-tokens", b"%d" % counts.prompt),
                (b"x-pando-cached-tokens", b"%d" % counts.cached),
            )
        if self._resumed:
            headers += ((RESUMED, b"%d" % self._resumed),)
        await send({"type": "http.response.start", "status": 200, "headers": [*headers]})


def _name_of(event: object) -> bytes:
    """The tag of a struct, which its JSON has as `type`."""
    assert isinstance(event, msgspec.Struct)
    return str(event.__struct_config__.tag).encode()
