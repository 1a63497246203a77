"""The measurements of a worker, designed to separate the unknowns of a cost model.

A prompt alone, first new and then cached, shows the cost of tokens and of the server; the same
number of new tokens behind prefixes of several lengths, that of attention; requests that decode
together, few and many, short and long, that of rows and contexts; and a prompt that arrives while
another request streams, that of a step without the server around it.
"""

import asyncio
import random
from dataclasses import dataclass
from itertools import product

from pando_sim.cost.calibration.client import Client, Heard
from pando_sim.cost.calibration.observations import (
    Observation,
    decoding,
    first_token,
    interrupted,
)

_BEGINNINGS = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so")
_ENDINGS = ("lan", "mer", "tin", "dos", "ful", "rab", "nek", "sit", "gom", "pus")
_WORDS = [begin + end for begin, end in product(_BEGINNINGS, _ENDINGS)]
OUTPUT_TOKENS = 48  # of requests that decode together


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of the measurements."""

    longest_prompt: int  # tokens, including the output
    capacity_tokens: int  # of requests that run at once
    most_together: int
    chunk_tokens: int


class Texts:
    """Makes prompts of about a given number of tokens; no two begin alike."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tokens_per_word = 1.0

    async def learn(self, client: Client) -> None:
        """Measures how many tokens a word has for this worker."""
        heard = await client.ask(self.of(200), 1)
        self.tokens_per_word = heard.prompt_tokens / 200

    def of(self, tokens: int) -> str:
        words = max(1, round(tokens / self.tokens_per_word))
        return " ".join(self._random.choices(_WORDS, k=words))


@dataclass(frozen=True, slots=True)
class Alone:
    """A prompt that is first new, and then cached."""

    tokens: int

    async def measure(self, client: Client, texts: Texts, limits: Limits) -> list[Observation]:
        text = texts.of(self.tokens)
        new = await client.ask_idle(text)
        cached = await client.ask_idle(text)
        return [
            first_token(f"first token of {self.tokens} new tokens", new, limits.chunk_tokens),
            first_token(f"first token of {self.tokens} cached tokens", cached, limits.chunk_tokens),
        ]


@dataclass(frozen=True, slots=True)
class Behind:
    """New tokens behind a cached prefix."""

    cached: int
    tokens: int

    async def measure(self, client: Client, texts: Texts, limits: Limits) -> list[Observation]:
        prefix = texts.of(self.cached)
        await client.ask(prefix, 1)
        heard = await client.ask_idle(f"{prefix} {texts.of(self.tokens)}")
        what = f"first token of {self.tokens} new tokens behind {self.cached} cached ones"
        return [first_token(what, heard, limits.chunk_tokens)]


@dataclass(frozen=True, slots=True)
class Together:
    """Requests that decode together."""

    requests: int
    tokens: int  # of each prompt

    async def measure(self, client: Client, texts: Texts, limits: Limits) -> list[Observation]:
        # so that all begin to decode at about the same time
        prompts = [texts.of(self.tokens) for _ in range(self.requests)]
        for prompt in prompts:
            await client.ask(prompt, 1)
        heard = await asyncio.gather(*(client.ask(p, OUTPUT_TOKENS) for p in prompts))
        what = f"a step of {self.requests} requests behind {self.tokens} tokens"
        observation = decoding(what, heard)
        return [] if observation is None else [observation]


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A stream, and a new prompt that arrives during it."""

    tokens: int  # of the prompt

    async def measure(self, client: Client, texts: Texts, limits: Limits) -> list[Observation]:
        begun = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                stream = tasks.create_task(client.ask(texts.of(32), 3 * OUTPUT_TOKENS, begun))
                beside = tasks.create_task(self._beside(client, texts.of(self.tokens), begun))
        except ExceptionGroup as broken:  # the one that failed has ended the other
            raise broken.exceptions[0] from None
        what = f"a stream's silence while {self.tokens} tokens are prefilled"
        observation = interrupted(what, stream.result(), beside.result(), limits.chunk_tokens)
        return [] if observation is None else [observation]

    async def _beside(self, client: Client, prompt: str, begun: asyncio.Event) -> Heard:
        await begun.wait()
        return await client.ask(prompt, 1)


Measurement = Alone | Behind | Together | Interrupted


def design(limits: Limits) -> list[Measurement]:
    """Lengths and numbers that double, up to the limits."""
    # Texts have only about the wanted lengths.
    longest = int(0.95 * min(limits.longest_prompt, limits.capacity_tokens // 2)) - OUTPUT_TOKENS
    lengths = [*_doubling(64, longest), longest]
    measurements: list[Measurement] = [Alone(length) for length in dict.fromkeys(lengths)]
    behind = min(256, longest // 4)
    measurements += [
        Behind(length, behind) for length in _doubling(512, longest - behind) if length >= behind
    ]
    one_chunk = min(limits.chunk_tokens - 1, longest)
    measurements += [Interrupted(length) for length in _doubling(128, one_chunk)]
    contexts = dict.fromkeys([64, longest // 4, longest])
    for context in contexts:
        at_once = min(
            limits.most_together, limits.capacity_tokens * 3 // 4 // (context + OUTPUT_TOKENS)
        )
        measurements += [Together(requests, context) for requests in _doubling(1, at_once)]
    return measurements


def _doubling(first: int, most: int) -> list[int]:
    numbers = []
    while first <= most:
        numbers.append(first)
        first *= 2
    return numbers
