"""Drain, warm join and hand-off: marks in a real Redis, performed by real routers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from pando_fleet.records.marks import Mark, Marks
from pando_fleet.redis.client import connect
from pando_fleet.redis.layout.constants import MarkKind, MarkState
from pando_router.warming import warming
from tests.router.world import Replica, RouterClient, chat, completion, serving, status, until

LASTS_MS = 60_000
FAST: dict[str, Any] = {"prefill_tokens_per_s": 1_000.0, "capacity_tokens": 1_000_000}


def text(name: str, chunks: int) -> str:
    """A prompt of this many chunks, 64 tokens each."""
    return "".join(f"{name}{i:06d} " for i in range(chunks * 40))[: chunks * 256]


class Engine(Replica):
    """A replica with a cache: it reports the cached part of each prompt, and keeps the prompt."""

    def __init__(self, *args: Any, **beat: Any) -> None:
        super().__init__(*args, **FAST | beat)
        self.cache: list[str] = []
        self.answer = self.compute

    async def compute(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(self.received[-1].body)
        prompt = body["prompt"] if "prompt" in body else json.dumps(body["messages"])
        cached = max((_common(prompt, known) for known in self.cache), default=0) // 4
        self.cache.append(prompt)
        headers = {
            "x-pando-prompt-tokens": str(len(prompt) // 4),
            "x-pando-cached-tokens": str(min(cached, len(prompt) // 4 - 1)),
        }
        return web.json_response({}, headers=headers)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(received.body) for received in self.received]


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@asynccontextmanager
async def marks_of(redis_url: str) -> AsyncIterator[Marks]:
    redis = connect(redis_url)
    try:
        yield Marks(redis, "default")
    finally:
        await redis.aclose()


async def over(marks: Marks, kind: MarkKind) -> Mark:
    """Waits until the mark of that kind is done or skipped, and returns it."""
    found: list[Mark] = []

    async def is_over() -> bool:
        found[:] = [mark for mark in await marks.all() if mark.kind is kind and mark.is_over]
        return bool(found)

    await until(is_over, f"the {kind} mark is over")
    return found[0]


async def matched(router: RouterClient, prompt: str) -> dict[str, int]:
    """Tokens of the prompt that each replica is believed to hold."""
    answer = await router.post("/route/explain?path=/v1/completions", completion(prompt))
    return {c["replica"]: c["matched_tokens"] for c in answer.json["candidates"]}


async def ask(router: RouterClient, *prompts: str) -> list[str]:
    """The replicas that answered, in order."""
    return [(await router.post("/v1/completions", completion(p))).replica for p in prompts]


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routers count every request and read the marks often."""
    monkeypatch.setattr(warming, "OBSERVE_EVERY_S", 0.0)
    monkeypatch.setattr(warming, "POLL_S", 0.02)


@pytest.mark.parametrize("policy", ["cache_aware", "round_robin"])
async def test_draining_replica_gets_no_request_from_the_mark_on(
    valkey_url: str, policy: str
) -> None:
    async with (
        Engine(valkey_url, "a") as a,
        Engine(valkey_url, "b"),
        marks_of(valkey_url) as marks,
        serving(valkey_url, policy=policy) as router,
    ):
        await router.ready("a", "b")
        await ask(router, *(f"{i}" for i in range(4)))
        await marks.set(MarkKind.DRAIN, "a", lasts_ms=LASTS_MS)
        before = len(a.received)
        assert set(await ask(router, *(f"{i}" for i in range(12)))) == {"b"}
        await router.ready("a", state="draining")
        assert len(a.received) == before
        await marks.clear(MarkKind.DRAIN, "a")
        await router.ready("a")
        assert set(await ask(router, *(f"{i}" for i in range(12)))) == {"a", "b"}


async def test_joining_replica_gets_the_hottest_prefixes_before_its_first_request(
    valkey_url: str,
) -> None:
    system = text("system", 8)
    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        await ask(router, *(system + text(f"own{i}", 2) for i in range(12)))
        await ask(router, text("cold", 4))
        await marks.set(MarkKind.WARM, "b", lasts_ms=LASTS_MS, budget_tokens=100_000)
        async with Engine(valkey_url, "b") as b:
            await router.ready("b", state="warming")
            mark = await over(marks, MarkKind.WARM)
            assert (mark.state, mark.tokens, mark.prefixes) == (MarkState.DONE, 8 * 64, 1)
            (prefill,) = b.bodies  # no other request, and none for a prompt that came once
            assert prefill["prompt"] == system
            assert prefill["max_tokens"] == 1
            await router.ready("b")
            found = await matched(router, system + text("new", 2))
            assert found == {"a": 8 * 64, "b": 8 * 64}
        pool = 'kind="warm",pool="default"'
        assert await router.metric(f"pando_router_mark_prefill_tokens_total{{{pool}}}") == 8 * 64


async def test_warming_ends_with_its_budget_and_begins_with_the_hottest(valkey_url: str) -> None:
    prompts = {count: text(f"{count}seen", 4) for count in (2, 5, 3, 4)}
    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        for count, prompt in prompts.items():
            await ask(router, *(prompt for _ in range(count)))
        # Room for two and a half.
        await marks.set(MarkKind.WARM, "b", lasts_ms=LASTS_MS, budget_tokens=10 * 64)
        async with Engine(valkey_url, "b") as b:
            mark = await over(marks, MarkKind.WARM)
            assert mark.tokens == 10 * 64
            half = prompts[3][: 2 * 256]
            assert [body["prompt"] for body in b.bodies] == [prompts[5], prompts[4], half]


async def test_conversation_is_warmed_with_what_its_template_needs(valkey_url: str) -> None:
    system = {"role": "system", "content": text("rules", 6)}
    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        for number in range(6):
            question = {"role": "user", "content": text(f"question{number}", 1)}
            body = {"model": "m", "messages": [system, question], "stream": True}
            await router.post("/v1/chat/completions", body)
        await marks.set(MarkKind.WARM, "b", lasts_ms=LASTS_MS, budget_tokens=100_000)
        async with Engine(valkey_url, "b") as b:
            await over(marks, MarkKind.WARM)
            (prefill,) = b.bodies
            assert [message["role"] for message in prefill["messages"]] == ["system", "user"]
            assert system["content"].startswith(prefill["messages"][0]["content"])
            assert "stream" not in prefill


async def test_prompt_that_is_refused_when_cut_is_sent_whole(valkey_url: str) -> None:
    whole = [text("first", 4), text("second", 2)]

    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        for last in ("x", "y"):
            await router.post("/v1/chat/completions", chat(*whole, text(last, 2)))
        await marks.set(MarkKind.WARM, "b", lasts_ms=LASTS_MS, budget_tokens=100_000)
        async with Engine(valkey_url, "b") as b:

            async def picky(request: web.Request) -> web.StreamResponse:
                if b.bodies[-1]["messages"][-1]["role"] != "user":
                    return web.json_response({}, status=400)
                return await b.compute(request)

            b.answer = picky
            mark = await over(marks, MarkKind.WARM)
            assert (mark.state, mark.prefixes) == (MarkState.DONE, 1)
            assert [len(body["messages"]) for body in b.bodies] == [2, 3]


async def test_what_only_the_leaving_replica_has_goes_to_one_that_stays(valkey_url: str) -> None:
    both, alone = text("both", 4), text("alone", 6)
    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url, policy="session") as router,
    ):
        await router.ready("a")
        await ask(router, alone, both, both)
        async with Engine(valkey_url, "b") as b:
            await router.ready("b")
            sessions = ({"x-session-id": f"{i}"} for i in range(64))
            while not b.received:  # until a session is b's
                await router.post("/v1/completions", completion(both), **next(sessions))
            assert await matched(router, alone) == {"a": 6 * 64 - 1, "b": 0}
            b.received.clear()
            await marks.set(MarkKind.DRAIN, "a", lasts_ms=LASTS_MS)
            await marks.set(MarkKind.HAND_OFF, "a", lasts_ms=LASTS_MS, budget_tokens=100_000)
            mark = await over(marks, MarkKind.HAND_OFF)
            assert (mark.state, mark.tokens, mark.prefixes) == (MarkState.DONE, 6 * 64, 1)
            assert [body["prompt"] for body in b.bodies] == [alone]
            assert await matched(router, alone) == {"b": 6 * 64 - 1}

            async def leases() -> int:
                path = "/route/explain?path=/v1/completions"
                answer = await router.post(path, completion("x"))
                return sum(c["outstanding"] for c in answer.json["candidates"])

            assert await leases() == 0


async def test_mark_is_skipped_where_no_router_has_bytes(valkey_url: str) -> None:
    async with (
        marks_of(valkey_url) as marks,
        serving(valkey_url, hot_prefix_bytes=0) as router,
    ):
        await marks.set(MarkKind.WARM, "a", lasts_ms=LASTS_MS, budget_tokens=1_000)
        async with Engine(valkey_url, "a") as a:
            mark = await over(marks, MarkKind.WARM)
            assert mark.state is MarkState.SKIPPED
            assert "no router has the bytes" in mark.reason
            await router.ready("a")
            assert a.received == []


async def test_of_two_routers_the_one_with_bytes_performs_a_mark_once(valkey_url: str) -> None:
    prompt = text("hot", 4)
    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url) as empty,
        serving(valkey_url) as full,
        serving(valkey_url) as full_too,
    ):
        await empty.ready("a")
        for router in (full, full_too):
            await router.ready("a")
            await ask(router, prompt, prompt)
        await marks.set(MarkKind.WARM, "b", lasts_ms=LASTS_MS, budget_tokens=100_000)
        async with Engine(valkey_url, "b") as b:
            mark = await over(marks, MarkKind.WARM)
            assert (mark.state, mark.prefixes) == (MarkState.DONE, 1)
            await empty.ready("b")
            assert [body["prompt"] for body in b.bodies] == [prompt]


async def test_replica_that_cannot_prefill_is_let_in_with_a_reason(valkey_url: str) -> None:
    async with (
        Engine(valkey_url, "a"),
        marks_of(valkey_url) as marks,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        for name in "xyz":
            await ask(router, text(name, 2), text(name, 2))
        await marks.set(MarkKind.WARM, "b", lasts_ms=LASTS_MS, budget_tokens=100_000)
        async with Engine(valkey_url, "b") as b:
            b.answer = status(500)
            mark = await over(marks, MarkKind.WARM)
            assert mark.state is MarkState.SKIPPED
            assert "500" in mark.reason
            await router.ready("b")
            assert (await matched(router, text("x", 2)))["b"] == 0
