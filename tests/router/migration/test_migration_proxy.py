"""Streams through a real router, over real sockets, that lose their replica."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import web
from redis.asyncio import Redis

from tests.router.scripted_engine import PROMPT_TOKENS, TEXT, Engine, Event
from tests.router.world import (
    Handler,
    Replica,
    RouterClient,
    Stream,
    chat,
    fleet,
    reset,
    serving,
    status,
    until,
)
from tests.waiting import PATIENCE_S

GREEDY: Event = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
CHAT = "/v1/chat/completions"


def headers_of(engine: Engine) -> dict[str, str]:
    names = (b"x-pando-prompt-tokens", b"x-pando-cached-tokens", b"x-pando-resumed-tokens")
    told = {name.decode(): engine.count(name) for name in names}
    return {name: str(count) for name, count in told.items() if count is not None}


def says(engine: Engine, *, cut: int | None = None, hold: asyncio.Event | None = None) -> Handler:
    """Answers like the engine, waits for `hold` after `cut` bytes, then breaks."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/tokenize":
            return web.json_response({"count": 3, "tokens": [1, 2, 3]})
        said = engine.answer(json.loads(await request.read()))
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", **headers_of(engine)}
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(said[:cut])
        if hold is not None:
            await hold.wait()
        if cut is not None:
            assert request.transport is not None
            request.transport.close()
        return response

    return answer


def engine_says() -> bytes:
    return Engine(CHAT).answer(chat("P", **GREEDY))


async def text_of(router: RouterClient, **fields: Any) -> tuple[str, Any]:
    """Text and usage of a stream as OpenAI's client reads it. Raises its APIError."""
    async with openai.AsyncOpenAI(
        base_url=f"{router.url}/v1", api_key="x", max_retries=0
    ) as client:
        text, usage, finishes = "", None, []
        async for chunk in await client.chat.completions.create(**chat("P", **GREEDY) | fields):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finishes += [choice.finish_reason] if choice.finish_reason else []
        assert finishes == ["stop"]
        return text, usage


async def nothing_leased(url: str) -> bool:
    async with Redis.from_url(url) as redis:
        return not await redis.zcard("pando:{default}:leases")


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Replica, Replica, RouterClient]]:
    async with Replica(url, "a") as a, Replica(url, "b") as b, serving(url) as router:
        yield a, b, router


def both(engine: Engine, a: Replica, b: Replica, *cuts: int) -> None:
    """The first replica to be asked breaks after the first cut, the next after the second …"""
    left = list(cuts)

    async def answer(request: web.Request) -> web.StreamResponse:
        cut = left.pop(0) if left and request.path != "/tokenize" else None
        return await says(engine, cut=cut)(request)

    a.answer = b.answer = answer


async def test_a_client_does_not_notice_that_its_replica_died(valkey_url: str) -> None:
    engine = Engine(CHAT)
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url) as r,
    ):
        both(engine, a, b, 700)
        text, usage = await text_of(r)
        assert text == TEXT
        assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, 9)
        assert usage.prompt_tokens_details.cached_tokens == 9
        first, second = [*a.received, *b.received]
        assert {first.headers["x-request-id"]} == {second.headers["x-request-id"]}
        assert first.headers["x-pando-token-ids"] == "1"
        assert await r.metric('pando_router_migrations_total{outcome="migrated"}') == 1


async def test_a_stream_survives_as_many_deaths_as_there_are_others(valkey_url: str) -> None:
    engine = Engine(CHAT)
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        Replica(valkey_url, "c") as c,
        serving(valkey_url) as router,
    ):
        both(engine, a, b, 500, 900)
        c.answer = a.answer
        assert (await text_of(router))[0] == TEXT
        assert [len(r.received) for r in (a, b, c)] == [1, 1, 1]
        # Everything that was reserved in the shared state is released.
        await until(lambda: nothing_leased(valkey_url), "leases are gone")


async def test_a_replica_that_cannot_take_it_is_passed_over(valkey_url: str) -> None:
    engine = Engine(CHAT)
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        Replica(valkey_url, "c") as c,
        serving(valkey_url) as router,
    ):
        order: list[Handler] = [says(engine, cut=700), status(503), says(engine)]

        async def answer(request: web.Request) -> web.StreamResponse:
            return await order.pop(0)(request)

        a.answer = b.answer = c.answer = answer
        assert (await text_of(router))[0] == TEXT


async def test_another_engine_counts_the_text_so_far(valkey_url: str) -> None:
    """This one reports no usage during the stream; its /tokenize gives the remaining tokens."""
    engine = Engine(CHAT, pando=False)
    async with two(valkey_url) as (a, b, r):
        engine.tells_usage = False
        said = Engine(CHAT, pando=False, tells_usage=False).answer(chat("P", **GREEDY))
        both(engine, a, b, said.index(b"quoted"))
        text, usage = await text_of(r, max_tokens=20)
        assert text == TEXT
        last = engine.asked[-1]
        assert last["messages"][-1] == {"role": "assistant", "content": "Hello wörld"}
        assert last["max_tokens"] == 20 - 3
        assert (usage.prompt_tokens, usage.completion_tokens) == (PROMPT_TOKENS, 9)
        [tokenized] = [got for got in a.received + b.received if got.path == "/tokenize"]
        assert json.loads(tokenized.body)["prompt"] == "Hello wörld"


@pytest.mark.parametrize(
    ("fields", "settings", "reason"),
    [
        ({"temperature": 1}, {}, "neither greedy nor seeded"),
        ({}, {"migrate": "off"}, "was lost mid-stream"),
    ],
)
async def test_a_stream_that_may_not_go_on_ends_with_a_clear_error(
    valkey_url: str, fields: Event, settings: dict[str, Any], reason: str
) -> None:
    engine = Engine(CHAT)
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url, **settings) as router,
    ):
        both(engine, a, b, engine_says().index(b"data: ", 700))
        with pytest.raises(openai.APIError, match=reason):
            await text_of(router, **fields)
        assert len(a.received + b.received) == 1


async def test_a_stream_waits_for_the_others_and_not_for_the_replica_that_died(
    valkey_url: str,
) -> None:
    """Its heartbeat looks fresh, and it has room while the others have none."""
    hold = asyncio.Event()
    engine = Engine(CHAT)
    async with fleet(valkey_url, "a", "b", max_replica_requests=1) as (r, [a, b]):
        for replica in (a, b):
            replica.answer = says(engine, cut=700, hold=hold)
        lost = asyncio.create_task(text_of(r))
        await until(lambda: a.received or b.received, "one is asked")
        dies, lives = (a, b) if a.received else (b, a)
        done = asyncio.Event()
        lives.answer = says(engine, hold=done)
        async with r.session.post(r.url + CHAT, json=chat("P", **GREEDY)) as busy:
            await busy.content.readany()
            await dies.refuse()

            async def waits() -> bool:
                return await r.metric('pando_router_queue_requests{pool="default"}') == 1

            await until(waits, "the stream waits for room")
            done.set()
            await busy.read()
        assert (await lost)[0] == TEXT
        assert len(lives.received) == 2
        failures = 'pando_router_replica_failures_total{pool="default",when="before_first_byte"}'
        assert await r.metric(failures) == 0


async def test_where_nobody_is_left_the_stream_ends_with_a_clear_error(valkey_url: str) -> None:
    engine = Engine(CHAT)
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url) as r,
    ):
        order: list[Handler] = [says(engine, cut=700), reset, reset, reset, reset]

        async def answer(request: web.Request) -> web.StreamResponse:
            return await order.pop(0)(request)

        a.answer = b.answer = answer
        with pytest.raises(openai.APIError, match=r"lost mid-stream.*no replica could take"):
            await text_of(r)
        assert await r.metric('pando_router_migrations_total{outcome="no_replica"}') == 1


async def test_a_client_that_leaves_ends_the_continuation(valkey_url: str) -> None:
    engine = Engine(CHAT)
    hold = asyncio.Event()
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url) as r,
    ):
        order: list[Handler] = [says(engine, cut=700), says(engine, cut=900, hold=hold)]

        async def answer(request: web.Request) -> web.StreamResponse:
            return await order.pop(0)(request)

        a.answer = b.answer = answer
        async with r.session.post(r.url + CHAT, json=chat("P", **GREEDY)) as client:
            await client.content.readany()
            await until(lambda: len(a.received + b.received) == 2, "it goes on")
        await until(lambda: a.cancelled + b.cancelled, "the new replica's request is cancelled")
        await until(lambda: nothing_leased(valkey_url), "leases are gone")


async def test_the_head_of_an_answer_does_not_wait_for_its_first_event(valkey_url: str) -> None:
    stream = Stream()
    async with Replica(valkey_url, "a") as a, serving(valkey_url) as r:
        a.answer = stream
        asked = asyncio.create_task(r.session.post(r.url + CHAT, json=chat("P", **GREEDY)))
        await stream.started.wait()
        stream.put(b"data: {")
        async with asyncio.timeout(PATIENCE_S), await asked as answer:  # it has only half an event
            assert answer.status == 200
            stream.put(b'"choices": []}\n\n')
            assert await answer.content.readany() == b'data: {"choices": []}\n\n'
            stream.end()


@pytest.mark.parametrize(
    ("fields", "asked"),
    [({"temperature": 0}, True), ({"temperature": 1}, False), ({"stream": False}, False)],
)
async def test_token_ids_are_asked_for_where_a_stream_may_go_on(
    valkey_url: str, fields: Event, asked: bool
) -> None:
    async with Replica(valkey_url, "a") as a, serving(valkey_url) as r:
        body = {"temperature": 0, "stream": True} | fields
        await r.post(CHAT, chat("P", **body))
        assert ("x-pando-token-ids" in a.received[0].headers) == asked


async def test_sampled_streams_use_up_nothing_that_a_greedy_one_needs(valkey_url: str) -> None:
    engine, hold = Engine(CHAT), asyncio.Event()
    said = engine_says()
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url, migrate_memory_bytes=2 * len(said)) as r,
    ):
        a.answer = b.answer = says(engine, cut=900, hold=hold)
        bodies = [chat("P", **GREEDY) | {"temperature": 1}] * 4
        clients = [await r.session.post(r.url + CHAT, json=body) for body in bodies]
        for client in clients:
            await client.content.readany()
        both(engine, a, b, 700)
        assert (await text_of(r))[0] == TEXT
        hold.set()
        for client in clients:
            client.close()
