"""Streams of real workers, one of which is killed under load: no client notices."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S, pauses, until_async

pytestmark = pytest.mark.e2e

STREAMS = 16
TYPED_STREAMS = 4  # of messages, and as many of responses
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


@dataclass(slots=True)
class Typed:
    """A stream of messages or responses, as its client put it together."""

    text: str = ""
    whole: str = ""  # as its last events have it
    ids: frozenset[str] = frozenset()
    tokens: int = 0
    request_id: str = ""
    replica: str = ""  # where it began
    is_lost: bool = False  # no replica keeps it


async def message(client: openai.AsyncOpenAI, number: int, seen: Typed) -> None:
    base = str(client.base_url).removesuffix("/v1/")
    async with (
        anthropic.AsyncAnthropic(base_url=base, api_key="none", max_retries=0) as other,
        other.messages.stream(
            model=MODEL,
            max_tokens=MAX_TOKENS,
            messages=[{"role": "user", "content": f"What is the name of function {number}?"}],
            extra_body={"temperature": 0},
        ) as events,
    ):
        async for text in events.text_stream:
            seen.text += text
        last = await events.get_final_message()
    seen.whole = "".join(block.text for block in last.content if block.type == "text")
    seen.ids |= {last.id}
    seen.tokens = last.usage.output_tokens


async def response(client: openai.AsyncOpenAI, number: int, seen: Typed) -> None:
    events = await client.responses.create(
        model=MODEL,
        max_output_tokens=MAX_TOKENS,
        input=f"What does function {number} return?",
        temperature=0,
        stream=True,
    )
    headers = events.response.headers
    seen.request_id, seen.replica = headers["x-request-id"], headers["x-pando-replica"]
    numbers = []
    async for event in events:
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            seen.text += event.delta
        if event.type in ("response.created", "response.completed", "response.incomplete"):
            seen.ids |= {event.response.id}
            seen.whole = event.response.output_text
            seen.tokens = event.response.usage.output_tokens if event.response.usage else 0
    assert numbers == list(range(len(numbers)))
    # Wherever it ended, it is kept: the router finds it.
    (kept,) = seen.ids
    for pause in pauses():
        try:
            assert (await client.responses.retrieve(kept)).output_text == seen.whole
        except openai.NotFoundError:
            seen.is_lost = True
        except openai.InternalServerError as error:
            # It ended where the end came, which the router does not know yet.
            assert error.status_code == 502
            await asyncio.sleep(pause)
            continue
        return


async def all_streams(
    client: openai.AsyncOpenAI,
    streams: list[Stream],
    on_text: Callable[[], None] = nothing,
    typed: Sequence[Typed] = (),
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(
            *(stream(client, n, seen, on_text) for n, seen in enumerate(streams)),
            *(message(client, n, seen) for n, seen in enumerate(typed[:TYPED_STREAMS])),
            *(response(client, n, seen) for n, seen in enumerate(typed[TYPED_STREAMS:])),
        )


@pytest.mark.parametrize(
    "whole", [True, pytest.param(False, marks=pytest.mark.long)], ids=["worker", "its engine"]
)
async def test_a_killed_worker_costs_no_greedy_or_seeded_stream_a_character(
    up: UpProcess, client: openai.AsyncOpenAI, whole: bool
) -> None:
    """Also if only the engine's process is killed, which the worker's server then reports."""
    await until_async(
        lambda: [row["state"] for row in up.replicas().values()] == ["ready"] * 2, "both are ready"
    )
    unbroken = [Stream() for _ in range(STREAMS)]
    unbroken_typed = [Typed() for _ in range(2 * TYPED_STREAMS)]
    await all_streams(client, unbroken, typed=unbroken_typed)
    workers = {replica: up.part(replica) for replica in up.replicas()}
    victims = {
        replica: [worker] if whole else worker.children(recursive=True)
        for replica, worker in workers.items()
    }
    streams = [Stream() for _ in range(STREAMS)]
    typed = [Typed() for _ in range(2 * TYPED_STREAMS)]
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
    await all_streams(client, streams, kill_busiest, typed)

    assert killed
    moved = migrated(up)
    assert len(moved) > len(before)
    assert not any(one.is_lost for one in unbroken_typed)
    for one in typed:  # lost is only what had ended where the end came
        assert not one.is_lost or (one.replica in killed and one.request_id not in moved)
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
    for got, wanted in zip(typed, unbroken_typed, strict=True):
        assert got.text == got.whole == wanted.text
        assert len(got.ids) == 1
        assert got.tokens == wanted.tokens
    # A draw can fall between two tokens. Rounding then decides, and it depends on the batch's
    # shape, even if no worker dies.
    equal = sum(seen.text == truth.text for seen, truth in zip(streams, unbroken, strict=True))
    assert equal >= STREAMS - 2


def migrated(up: UpProcess) -> list[str]:
    """The ids of requests whose streams migrated."""
    return [line["request_id"] for line in up.log if line.get("event") == "stream migrated"]
