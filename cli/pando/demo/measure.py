"""Holds conversations with a fleet over its streaming API and measures every turn."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import aiohttp

from pando.demo.conversations import Conversation
from pando.demo.errors import DemoError
from pando.up.router_client import RouterClient

AT_ONCE = 6  # conversations
MAX_TOKENS = 24  # of an answer
TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclass(frozen=True, slots=True)
class Turn:
    """One question and its answer."""

    ttft_s: float  # time to first token
    prompt_tokens: int
    cached_tokens: int
    answer: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """All turns held with one fleet."""

    turns: Sequence[Turn]
    seconds: float  # from the first request to the last answer

    @property
    def prompt_tokens(self) -> int:
        return sum(turn.prompt_tokens for turn in self.turns)

    @property
    def cached_tokens(self) -> int:
        return sum(turn.cached_tokens for turn in self.turns)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def mean_ttft_s(self) -> float:
        return sum(turn.ttft_s for turn in self.turns) / len(self.turns)

    @property
    def p99_ttft_s(self) -> float:
        ordered = sorted(turn.ttft_s for turn in self.turns)
        return ordered[int(0.99 * (len(ordered) - 1))]


async def hold_all(
    router: RouterClient, model: str, conversations: Iterable[Conversation]
) -> Outcome:
    """Hold the conversations, AT_ONCE at a time, in their order. Raises DemoError."""
    slots = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=router.headers) as http:

        async def in_a_slot(conversation: Conversation) -> list[Turn]:
            async with slots:
                return await _hold(http, router.url, model, conversation)

        started = perf_counter()
        held = await asyncio.gather(*map(in_a_slot, conversations))
        return Outcome([turn for turns in held for turn in turns], perf_counter() - started)


async def _hold(
    http: aiohttp.ClientSession, url: str, model: str, conversation: Conversation
) -> list[Turn]:
    messages = [{"role": "system", "content": conversation.system}]
    turns = []
    for question in conversation.questions:
        messages.append({"role": "user", "content": question})
        turn = await _ask(http, url, model, messages)
        messages.append({"role": "assistant", "content": turn.answer})
        turns.append(turn)
    return turns


async def _ask(
    http: aiohttp.ClientSession, url: str, model: str, messages: list[dict[str, str]]
) -> Turn:
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    started = perf_counter()
    ttft_s: float | None = None
    answer = ""
    usage: dict[str, Any] | None = None
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise DemoError(f"HTTP {response.status}: {await response.text()}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            if "error" in chunk:
                raise DemoError(f"a stream broke: {chunk['error']}")
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                if text := choice["delta"].get("content"):
                    ttft_s = ttft_s or perf_counter() - started
                    answer += text
    if usage is None:
        raise DemoError("a stream ended without usage")
    return Turn(
        # An answer may be empty; then its end counts as the first token.
        ttft_s=ttft_s or perf_counter() - started,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        answer=answer,
    )
