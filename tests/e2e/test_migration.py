"""Streams of real workers, one of which is killed under load: no client notices."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import until_async

pytestmark = pytest.mark.e2e

STREAMS = 16
MAX_TOKENS = 120


@pytest.fixture(scope="module")
def up() -> Iterator[UpProcess]:
    """A fleet of its own: it loses a worker."""
    with UpProcess() as process:
        yield process.wait_ready()


@dataclass(slots=True)
class Stream:
    """What a client has of its stream."""

    text: str = ""
    ids: frozenset[str] = frozenset()
    finishes: tuple[str, ...] = ()
    roles: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    replica: str = ""


def request(number: int) -> dict[str, Any]:
    """Greedy ones and seeded ones, some with a stop string, penalties or several bytes a token."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.0, "seed": number},
        {"temperature": 0.8, "seed": number, "frequency_penalty": 0.5},
        {"temperature": 1.8, "seed": number},
    ]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"What does function number {number} do?"}],
        "max_tokens": MAX_TOKENS,
        "extra_body": {"ignore_eos": True},
        "stream_options": {"include_usage": True},
        **kinds[number % len(kinds)],
    }


async def stream(client: openai.AsyncOpenAI, number: int, seen: Stream) -> None:
    raw = await client.chat.completions.with_raw_response.create(**request(number), stream=True)
    seen.replica = raw.headers["x-pando-replica"]
    async for chunk in raw.parse():
        seen.ids |= {chunk.id, str(chunk.created), chunk.model}
        for choice in chunk.choices:
            seen.text += choice.delta.content or ""
            seen.roles += choice.delta.role is not None
            seen.finishes += (choice.finish_reason,) if choice.finish_reason else ()
        if chunk.usage:
            seen.prompt_tokens = chunk.usage.prompt_tokens
            seen.completion_tokens = chunk.usage.completion_tokens


async def all_streams(client: openai.AsyncOpenAI, streams: list[Stream]) -> None:
    async with asyncio.timeout(90):
        await asyncio.gather(*(stream(client, n, seen) for n, seen in enumerate(streams)))


async def test_a_killed_worker_costs_no_greedy_or_seeded_stream_a_character(
    up: UpProcess, client: openai.AsyncOpenAI
) -> None:
    unbroken = [Stream() for _ in range(STREAMS)]
    await all_streams(client, unbroken)
    streams = [Stream() for _ in range(STREAMS)]
    running = asyncio.create_task(all_streams(client, streams))

    def begun() -> list[Stream]:
        return [s for s in streams if s.replica == "worker-0" and s.text and not s.finishes]

    await until_async(lambda: len(begun()) >= 3 or running.done(), "worker-0 has begun to answer")
    lost = begun()
    up.part("worker-0").kill()
    await running

    assert lost, "worker-0 had streams to lose"
    assert any(line.get("event") == "stream migrated" for line in up.log)
    equal = [seen.text == truth.text for seen, truth in zip(streams, unbroken, strict=True)]
    print(f"{sum(equal)} of {STREAMS} equal, {len(lost)} of them had lost their worker")
    for number, (seen, truth) in enumerate(zip(streams, unbroken, strict=True)):
        assert seen.finishes == truth.finishes == ("length",)
        assert seen.roles == 1
        assert len(seen.ids) == 3, "one id, one time, one model"
        assert seen.completion_tokens == truth.completion_tokens == MAX_TOKENS
        assert seen.prompt_tokens == truth.prompt_tokens
        assert seen.text == truth.text, f"stream {number} of {seen.replica}"
