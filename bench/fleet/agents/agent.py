"""A scripted agent: it calls the model, waits for a tool, and calls again with the whole
conversation so far."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai

CALLS = 10
"""Of a session."""
SYSTEM_WORDS, TASK_WORDS, RESULT_WORDS, ANSWER_TOKENS = 600, 30, 80, 24
PAUSE_S = 1.0
"""Mean time that a tool takes; exponentially distributed."""

_WORDS = ("open", "file", "look", "line", "names", "caller", "change", "returns", "test", "module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a client saw of one call; times are of `time.monotonic`."""

    number: int  # in its session
    sent_s: float
    ttft_s: float
    ended_s: float
    prompt_tokens: int
    cached_tokens: int


class Agent:
    """One session. The same name gives the same words and pauses."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, name: str) -> None:
        self._client = client
        self._model = model
        self._random = random.Random(name)
        begin = f"You are agent {name}. {self._words(SYSTEM_WORDS)}"
        self._messages: list[Any] = [
            {"role": "system", "content": begin},
            {"role": "user", "content": self._words(TASK_WORDS)},
        ]

    async def call(self, number: int) -> Call:
        """Raises openai.OpenAIError if no answer comes after the client's own retries."""
        sent_s, first_s, text, usage = time.monotonic(), None, "", None
        stream = await self._client.chat.completions.create(
            model=self._model,
            messages=self._messages,
            max_tokens=ANSWER_TOKENS,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        async with stream:
            async for event in stream:
                usage = event.usage or usage
                if event.choices and (words := event.choices[0].delta.content):
                    first_s, text = first_s or time.monotonic(), text + words
        if usage is None:
            raise openai.OpenAIError("the stream ended without usage")
        self._messages.append({"role": "assistant", "content": text})
        self._messages.append({"role": "user", "content": f"Result: {self._words(RESULT_WORDS)}"})
        ended_s = time.monotonic()
        details = usage.prompt_tokens_details
        return Call(
            number=number,
            sent_s=sent_s,
            ttft_s=(first_s or ended_s) - sent_s,
            ended_s=ended_s,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=(details and details.cached_tokens) or 0,
        )

    async def use_tool(self) -> None:
        await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=count))


def names(crowd: str) -> Iterator[str]:
    """Of as many sessions as are wanted."""
    number = 0
    while True:
        number += 1
        yield f"{crowd}-{number}"
