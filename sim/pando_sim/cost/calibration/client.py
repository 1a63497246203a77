"""A client of one worker: streams completions over HTTP and records the times of their tokens."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

from pando_sim.cost.calibration.errors import CalibrationError


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer. Times are in seconds of one clock; events without text are not recorded."""

    sent_s: float
    token_s: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def tokens_heard_of(self) -> float:
        """The share of the tokens after the first one that had an event."""
        return (len(self.token_s) - 1) / max(1, self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Way:
    """A router that sends requests with these headers to one worker."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """`async with Client(url, api_key, timeout_s) as client: …`"""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        timeout_s: float,
        pause_s: float = 0.0,
        way: Way | None = None,
    ) -> None:
        """
        Args:
            pause_s: before a request to an idle worker.
            way: of completions to the worker, if they are not sent to it directly.
        """
        self.url = url.rstrip("/")
        self._way = way or Way(self.url)
        self._pause_s = pause_s
        self.prompt_tokens = 0  # of all answers
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._model = ""

    async def __aenter__(self) -> "Client":
        self._http = aiohttp.ClientSession(
            headers=self._headers,
            timeout=self._timeout,
            # the server may close a kept connection just when it is used again
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._http.close()

    def serve_as(self, model: str) -> None:
        """Sets the model's name for later requests."""
        self._model = model

    async def get(self, path: str) -> tuple[bytes, Mapping[str, str]] | None:
        """The body and headers; None if there is no such path. Raises CalibrationError."""
        try:
            async with self._http.get(self.url + path) as response:
                if response.status == 404:
                    return None
                if response.status != 200:
                    raise CalibrationError(f"GET {path}: HTTP {response.status}")
                return await response.read(), response.headers
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise CalibrationError(f"GET {path}: {_said(error)}") from error

    async def ask_idle(self, prompt: str) -> Heard:
        """One token from a worker that was idle for the pause. Raises CalibrationError."""
        await asyncio.sleep(self._pause_s)
        return await self.ask(prompt, 1)

    async def ask(
        self, prompt: str, output_tokens: int, begun: asyncio.Event | None = None
    ) -> Heard:
        """Generates exactly `tokens` tokens, greedily; sets `begun` at the first. Raises
        CalibrationError."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,  # an extension of vLLM, SGLang and Pando
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            return await self._ask(body, begun or asyncio.Event())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise CalibrationError(f"a completion broke: {_said(error)}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CalibrationError(f"a completion is not as expected: {_said(error)}") from error

    async def _ask(self, body: dict[str, Any], begun: asyncio.Event) -> Heard:
        sent_s = time.perf_counter()
        times: list[float] = []
        usage: dict[str, Any] | None = None
        way = self._way
        async with self._http.post(
            f"{way.url}/v1/completions", json=body, headers=way.headers
        ) as response:
            if response.status != 200:
                said = (await response.text())[:300]
                raise CalibrationError(f"a completion got HTTP {response.status}: {said}")
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                now_s = time.perf_counter()
                chunk = json.loads(line.removeprefix(b"data: "))
                if "error" in chunk:
                    raise CalibrationError(f"a completion broke: {chunk['error']}")
                usage = chunk.get("usage") or usage
                if chunk["choices"]:
                    times.append(now_s)
                    begun.set()
        if usage is None or not times:
            raise CalibrationError("a completion ended without tokens, or without usage")
        self.prompt_tokens += usage["prompt_tokens"]
        return Heard(
            sent_s=sent_s,
            token_s=tuple(times),
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
            output_tokens=usage["completion_tokens"],
        )


def _said(error: BaseException) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__
