"""Streams of real workers, one of which is killed under load: no client notices."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import until_async

pytestmark = pytest.mark.e2e

STREAMS = 16
MAX_TOKENS = 120


@pytest.fixture
def up() -> Iterator[UpProcess]:
    """A separate fleet, as it loses a worker that still looks ready for some seconds."""
    with UpProcess() as process:
        yield process.wait_ready()


@dataclass(slots=True)
class Stream:
    """The part of a stream that its client has received."""

    text: str = ""
    ids: frozenset[str] = frozenset()
    finishes: tuple[str, ...] = ()
    roles: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    replica: str = ""
    scores: list[tuple[str, float]] = field(default_factory=list)  # tokens with log-probabilities


def request(number: int) -> dict[str, Any]:
    """A greedy request, sometimes with log-probabilities, or a seeded one."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.5, "seed": number},
        {"temperature": 0, "logprobs": True, "top_logprobs": 2},
        {"temperature": 0.8, "seed": number, "frequency_penalty": 0.5},
    ]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"What does function number {number} do?"}],
        "max_tokens": MAX_TOKENS,
        "extra_body": {"ignore_eos": True},
        "stream_options": {"include_usage": True},
        **kinds[number % len(kinds)],
    }


def nothing() -> None:
    """For unbroken streams."""


async def stream(
    client: openai.AsyncOpenAI, number: int, seen: Stream, on_text: Callable[[], None]
) -> None:
    raw = await client.chat.completions.with_raw_response.create(**request(number), stream=True)
    seen.replica = raw.headers["x-pando-replica"]
    async for chunk in raw.parse():
        seen.ids |= {chunk.id, str(chunk.created), chunk.model}
        for choice in chunk.choices:
            seen.text += choice.delta.content or ""
            scored = (choice.logprobs and choice.logprobs.content) or ()
            seen.scores += [(token.token, token.logprob) for token in scored]
            seen.roles += choice.delta.role is not None
            seen.finishes += (choice.finish_reason,) if choice.finish_reason else ()
            on_text()
        if chunk.usage:
            seen.prompt_tokens = chunk.usage.prompt_tokens
            seen.completion_tokens = chunk.usage.completion_tokens


async def all_streams(
    client: openai.AsyncOpenAI, streams: list[Stream], on_text: Callable[[], None] = nothing
) -> None:
    async with asyncio.timeout(90):
        await asyncio.gather(*(stream(client, n, seen, on_text) for n, seen in enumerate(streams)))


@pytest.mark.parametrize("whole", [True, False], ids=["worker", "its engine"])
async def test_a_killed_worker_costs_no_greedy_or_seeded_stream_a_character(
    up: UpProcess, client: openai.AsyncOpenAI, whole: bool
) -> None:
    """Also if only the engine's process is killed, which the worker's server then reports."""
    await until_async(
        lambda: [row["state"] for row in up.replicas().values()] == ["ready"] * 2, "both are ready"
    )
    unbroken = [Stream() for _ in range(STREAMS)]
    await all_streams(client, unbroken)
    workers = {replica: up.part(replica) for replica in up.replicas()}
    victims = {
        replica: [worker] if whole else worker.children(recursive=True)
        for replica, worker in workers.items()
    }
    streams = [Stream() for _ in range(STREAMS)]
    killed: list[str] = []

    def kill_busiest() -> None:
        """Kills as soon as a worker has streams to lose, before a quick one has sent all of
        them."""
        begun = Counter(s.replica for s in streams if s.text and not s.finishes)
        ((replica, count),) = begun.most_common(1) or [("", 0)]
        if count >= 3 and not killed:
            killed.append(replica)
            for process in victims[replica]:
                process.kill()

    before = migrated(up)
    await all_streams(client, streams, kill_busiest)

    assert killed
    assert migrated(up) > before
    for number, (seen, truth) in enumerate(zip(streams, unbroken, strict=True)):
        assert seen.finishes == truth.finishes == ("length",)
        assert seen.roles == 1
        assert len(seen.ids) == 3, "one id, one time, one model"
        assert seen.completion_tokens == truth.completion_tokens == MAX_TOKENS
        assert seen.prompt_tokens == truth.prompt_tokens
        if request(number)["temperature"] == 0:
            assert seen.text == truth.text, f"stream {number} of {seen.replica}"
            assert [token for token, _ in seen.scores] == [token for token, _ in truth.scores]
            known = pytest.approx([score for _, score in truth.scores], abs=1e-3)
            assert [score for _, score in seen.scores] == known
            assert len(seen.scores) == (MAX_TOKENS if "logprobs" in request(number) else 0)
    # A draw can fall between two tokens. Rounding then decides, and it depends on the batch's
    # shape,
    # even if no worker dies.
    equal = sum(seen.text == truth.text for seen, truth in zip(streams, unbroken, strict=True))
    assert equal >= STREAMS - 2


def migrated(up: UpProcess) -> int:
    return sum(line.get("event") == "stream migrated" for line in up.log)
