"""Sessions wait while others fill the replicas' memory, and those that run go on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pando_router.core import bounded_queue
from tests.router.admission.gate import Gate, ask, error, queued
from tests.router.world import Replica, RouterClient, completion, serving, until

# A replica of 10,000 tokens, of 4 bytes each, that computes 1,000 a second: 10 s of pause are free.
MEMORY: dict[str, Any] = {
    "capacity_tokens": 10_000,
    "prefill_tokens_per_s": 1_000.0,
    "bytes_per_token": 4.0,
    "max_request_tokens": 20_000,
}


def prompt(name: str, tokens: int) -> str:
    return name.ljust(4 * tokens, name[0])


@asynccontextmanager
async def a_fleet(
    valkey_url: str, **settings: Any
) -> AsyncIterator[tuple[Replica, Gate, RouterClient]]:
    settings = {"bound_sessions": True, "expected_output_tokens": 1, **settings}
    async with Replica(valkey_url, "a", **MEMORY) as a, serving(valkey_url, **settings) as router:
        a.answer = gate = Gate()
        await router.ready("a")
        yield a, gate, router


async def test_a_new_session_waits_and_the_calls_of_one_that_runs_pass_it(valkey_url: str) -> None:
    async with a_fleet(valkey_url) as (_, gate, router):
        first, longer, second = prompt("a", 6_000), prompt("a", 6_400), prompt("b", 6_000)
        one = ask(router, first)
        await until(lambda: gate.inside, "the first call")
        late = ask(router, second)
        await queued(router, 1)
        gate.let(first, longer)
        assert (await one).status == 200
        assert (await ask(router, longer)).status == 200
        assert gate.order == [first, longer]
        late.cancel()
        await queued(router, 0)


async def test_a_rewritten_conversation_goes_on_by_its_name(valkey_url: str) -> None:
    async with a_fleet(valkey_url, queue_timeout=0.1) as (_, gate, router):
        mine: dict[str, Any] = {"prompt_cache_key": "mine", "user": "app"}
        first, long, short = prompt("a", 3_000), prompt("b", 6_000), prompt("c", 4_000)
        gate.let(long, short)
        one = ask(router, first)
        await until(lambda: gate.inside, "another session's call")
        assert (await ask(router, long, mine)).status == 200
        assert error(await ask(router, short, {"user": "app"})) == (503, "queue_timeout")
        assert (await ask(router, short, mine)).status == 200
        gate.let(first)
        assert (await one).status == 200


async def test_whoever_waits_for_too_long_is_asked_to_come_again(valkey_url: str) -> None:
    async with a_fleet(valkey_url, queue_timeout=0.3) as (_, gate, router):
        first = prompt("a", 6_000)
        one = ask(router, first)
        await until(lambda: gate.inside, "the first call")
        answer = await ask(router, prompt("b", 6_000))
        assert error(answer) == (503, "queue_timeout")
        assert "other sessions filled the memory of the replicas" in answer.json["error"]["message"]
        assert int(answer.headers["retry-after"]) >= 1
        gate.let(first)
        assert (await one).status == 200


async def test_an_explanation_says_what_a_session_would_wait_for(valkey_url: str) -> None:
    async with a_fleet(valkey_url) as (_, gate, router):
        first = prompt("a", 6_000)
        one = ask(router, first)
        await until(lambda: gate.inside, "the first call")
        body = completion(prompt("b", 6_000))
        found = (await router.post("/route/explain?path=/v1/completions", body)).json
        assert found["chosen"] is None
        words = "waits: 1 session resumes first, working set 6,0"
        assert found["reason"].startswith(words)
        assert found["reason"].endswith(" of 10,000 tokens, and this one is new")
        gate.let(first, prompt("c", 3_000))
        assert (await one).status == 200
        assert (await ask(router, prompt("c", 3_000))).status == 200  # nothing was noted


async def test_a_session_that_has_memory_gets_the_next_free_place(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited for memory, and then finds all replicas full, is woken as others are."""
    monkeypatch.setattr(bounded_queue, "CROWD_PACE_S", 0.02)
    monkeypatch.setattr(bounded_queue, "PACE_S", 3600.0)
    async with a_fleet(valkey_url, max_replica_requests=2) as (replica, gate, router):
        first, second = prompt("a", 6_000), prompt("b", 6_000)
        one = ask(router, first)
        await until(lambda: gate.inside, "the first call")
        late = ask(router, second)
        await queued(router, 1)
        other = ask(router, "short")
        await until(lambda: len(gate.inside) == 2, "both places are taken")
        await replica.say(capacity_tokens=20_000)
        gate.let("short", second)
        assert (await other).status == (await late).status == 200
        gate.let(first)
        assert (await one).status == 200


async def test_without_the_setting_nobody_waits(valkey_url: str) -> None:
    async with a_fleet(valkey_url, bound_sessions=False) as (_, gate, router):
        prompts = [prompt(name, 6_000) for name in "abc"]
        gate.let(*prompts)
        for each in prompts:
            assert (await ask(router, each)).status == 200
