"""One streaming request to an OpenAI endpoint, timed, with its outcome in a `Record`.

Times are seconds of the client's clock. Every kind of failure has a name in `Record.error`; a
failed request keeps what was measured before the failure.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import msgspec

API = Literal["chat", "completions"]

PATHS: dict[API, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True)
class Record:
    """A request as its client observed it."""

    due: float  # when it should have been sent
    sent: float = 0.0
    chunks: list[float] = field(default_factory=list)  # when each piece of output arrived
    ended: float = 0.0  # when the stream was complete, or failed
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None  # None: the endpoint does not report it
    finish_reason: str | None = None
    error: str | None = None  # the kind, e.g. "HTTP 503"; None: it succeeded
    error_detail: str = ""
    text: str = ""

    @property
    def ttft(self) -> float:
        return self.chunks[0] - self.sent

    @property
    def tpot(self) -> float | None:
        """None if there is no second token."""
        if self.output_tokens < 2:
            return None
        return (self.chunks[-1] - self.chunks[0]) / (self.output_tokens - 1)

    @property
    def end_to_end(self) -> float:
        return self.ended - self.sent


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str  # without /v1
    model: str
    api: API
    api_key: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # more fields of the body

    def body(self, turns: list[tuple[str, str]], max_tokens: int) -> dict[str, Any]:
        """The request's JSON; `turns` are (role, text); completions join them into one prompt."""
        prompt: dict[str, Any]
        if self.api == "chat":
            prompt = {"messages": [{"role": role, "content": text} for role, text in turns]}
        else:
            prompt = {"prompt": " ".join(text for _, text in turns)}
        return {
            "model": self.model,
            **prompt,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra,
        }


class Client:
    """Sends requests over kept connections, as many at once as are requested."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeout_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock
        headers = {"content-type": "application/json"}
        if endpoint.api_key:
            headers["authorization"] = f"Bearer {endpoint.api_key}"
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=timeout_s, connect=None, sock_connect=30),
            headers=headers,
            read_bufsize=2**20,
        )

    async def close(self) -> None:
        await self._http.close()

    async def send(
        self, turns: list[tuple[str, str]], max_tokens: int, due: float | None = None
    ) -> Record:
        """Sends now, and reads the answer to its end; `due` is now by default."""
        body = msgspec.json.encode(self.endpoint.body(turns, max_tokens))
        sent = self.clock()
        record = Record(due=sent if due is None else due, sent=sent)
        try:
            await self._stream(body, record)
        except _RequestError as failure:
            record.error, record.error_detail = failure.kind, failure.detail
        except TimeoutError as error:
            record.error, record.error_detail = "timeout", str(error)
        except aiohttp.ClientConnectorError as error:
            record.error, record.error_detail = "no connection", str(error)
        except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
            record.error, record.error_detail = "broken connection", repr(error)
        except msgspec.DecodeError as error:
            record.error, record.error_detail = "malformed answer", str(error)
        record.ended = self.clock()
        return record

    async def _stream(self, body: bytes, record: Record) -> None:
        url = self.endpoint.url.rstrip("/") + PATHS[self.endpoint.api]
        async with self._http.post(url, data=body) as response:
            if response.status != 200:
                text = await response.text(errors="replace")
                raise _RequestError(f"HTTP {response.status}", text[:500])
            pieces: list[str] = []
            usage: _Usage | None = None
            done = False
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    done = True
                    continue  # until the body's end, so that the connection can be used again
                chunk = _DECODER.decode(data)
                if chunk.error is not None:
                    raise _RequestError("error in the stream", str(chunk.error)[:500])
                _take(chunk, record, pieces, self.clock)
                usage = chunk.usage or usage
        record.text = "".join(pieces)
        _check(record, usage, done)


class _RequestError(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


def _take(chunk: _Chunk, record: Record, pieces: list[str], clock: Callable[[], float]) -> None:
    for choice in chunk.choices:
        record.finish_reason = choice.finish_reason or record.finish_reason
        delta = choice.delta
        text = choice.text if delta is None else delta.content or delta.reasoning_content
        if text or (delta is not None and delta.tool_calls):
            record.chunks.append(clock())
        if text:
            pieces.append(text)


def _check(record: Record, usage: _Usage | None, done: bool) -> None:
    """Checks that a stream that ended is a complete answer that can be counted."""
    if usage is not None:
        record.prompt_tokens = usage.prompt_tokens
        record.output_tokens = usage.completion_tokens
        details = usage.prompt_tokens_details
        record.cached_tokens = None if details is None else details.cached_tokens
    if not done and record.finish_reason is None:
        raise _RequestError("stream cut short", f"after {len(record.chunks)} chunks")
    if usage is None:
        raise _RequestError("no usage in the stream", "stream_options.include_usage was sent")
    if not record.chunks:
        raise _RequestError("no output", f"finish_reason {record.finish_reason}")
