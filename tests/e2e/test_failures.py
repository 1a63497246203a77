"""What clients see while parts of the fleet die and come back."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.fleet.redis_server import VALKEY, RedisServer
from tests.waiting import command_of, read_each, until_async

pytestmark = pytest.mark.e2e

PASSWORD = "correct-horse"
REQUESTS = 50
MAX_TOKENS = 160


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server that a test may stop, with a password that must not appear anywhere."""
    server = RedisServer(VALKEY, "--save", "", "--appendonly", "no", password=PASSWORD)
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def up(redis: RedisServer) -> Iterator[UpProcess]:
    """A fleet on that server. Few requests run at once, so some wait without an answer."""
    environment = {"PANDO_UP_REDIS": redis.url, "PANDO_WORKER_MAX_RUNNING_REQUESTS": "8"}
    with UpProcess(environment=environment) as process:
        yield process.wait_ready()


@dataclass(slots=True)
class Stream:
    """The outcome of one streamed completion."""

    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int = 0
    error: dict[str, Any] | None = None
    replica: str = ""

    @property
    def outcome(self) -> str:
        if self.error:
            return "broken after its first byte"
        return "finished" if self.finish_reason else "ended without a word"


async def stream(http: aiohttp.ClientSession, up: UpProcess, number: int, seen: Stream) -> None:
    body = {
        "model": MODEL,
        "prompt": f"Number {number}:",
        "max_tokens": MAX_TOKENS,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with http.post(f"{up.url}/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        seen.replica = response.headers["x-pando-replica"]
        async for line in response.content:
            data = line.decode().removeprefix("data: ").strip()
            if not data or data == "[DONE]":
                continue
            event = json.loads(data)
            seen.error = event.get("error")
            for choice in event.get("choices", []):
                seen.text += choice["text"]
                seen.finish_reason = choice["finish_reason"] or seen.finish_reason
            if usage := event.get("usage"):
                seen.completion_tokens = usage["completion_tokens"]


async def test_a_killed_worker_costs_only_the_streams_that_it_had_begun(
    up: UpProcess, http: aiohttp.ClientSession
) -> None:
    streams = [Stream() for _ in range(REQUESTS)]
    running = [
        asyncio.create_task(stream(http, up, number, seen)) for number, seen in enumerate(streams)
    ]

    def begun_on(replica: str) -> list[Stream]:
        return [s for s in streams if s.replica == replica and s.text and not s.finish_reason]

    first = next(name for name in up.replicas() if name.startswith("worker-0-"))
    await until_async(lambda: begun_on(first), "worker-0 has begun to answer")
    assert any(not seen.replica for seen in streams), "some still wait for their first byte"
    killed = up.replicas()[first]["incarnation"]
    up.part(first).kill()

    async with asyncio.timeout(90):
        await asyncio.gather(*running)

    outcomes = Counter(seen.outcome for seen in streams)
    assert set(outcomes) <= {"finished", "broken after its first byte"}, outcomes
    assert outcomes.total() == REQUESTS
    broken = [seen for seen in streams if seen.error]
    assert broken, "the streams that worker-0 had begun are broken"
    assert all(seen.replica == first for seen in broken)
    assert all(seen.text and seen.error and seen.error["message"] for seen in broken)
    finished = [seen for seen in streams if not seen.error]
    assert {seen.completion_tokens for seen in finished} == {MAX_TOKENS}

    def is_back() -> bool:
        replica = up.replicas().get(first, {})
        return replica.get("state") == "ready" and replica["incarnation"] != killed

    await until_async(is_back, "worker-0 is ready again", seconds=60)
    crash = next(line for line in up.log if "crashed" in line["event"])
    assert "worker-0 crashed (killed by SIGKILL)" in crash["event"]


async def test_no_request_fails_while_redis_is_away_and_comes_back(
    up: UpProcess, redis: RedisServer, client: openai.AsyncOpenAI
) -> None:
    answered = 0
    enough = asyncio.Event()

    async def ask_on(user: int) -> None:
        nonlocal answered
        while not enough.is_set():
            await client.completions.create(model=MODEL, prompt=f"User {user}:", max_tokens=8)
            answered += 1

    async def answers_more(count: int, what: str) -> None:
        before = answered
        await until_async(lambda: answered >= before + count or any_failed(), what)

    def any_failed() -> bool:
        return any(user.done() for user in users)

    users = [asyncio.create_task(ask_on(user)) for user in range(4)]
    await answers_more(8, "requests are answered before")
    redis.stop()
    await until_async(lambda: redis_is(up, "away"), "the router has noticed")
    await answers_more(20, "requests are answered without Redis")
    redis.start()
    await until_async(lambda: redis_is(up, "up"), "Redis is back")
    await answers_more(20, "requests are answered after")
    enough.set()
    await asyncio.gather(*users)  # raises any failure

    await until_async(
        lambda: all(row["state"] == "ready" for row in up.replicas().values()), "all are back"
    )
    await assert_second_turn_is_cached(client)


def redis_is(up: UpProcess, state: str) -> bool:
    return bool(json.loads(up.get("/fleet"))["redis"] == state)


async def assert_second_turn_is_cached(client: openai.AsyncOpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "After the outage all is as before. " * 40},
        {"role": "user", "content": "Is it?"},
    ]
    for _ in range(2):
        answer = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens


async def test_the_password_of_redis_is_nowhere_to_be_seen(up: UpProcess) -> None:
    assert PASSWORD not in up.output
    commands = [command for _, command in read_each(up.processes(), command_of)]
    assert len(commands) >= 4
    assert not [command for command in commands if PASSWORD in command]
