"""The data path from both ends: what replicas receive and what clients get."""

import asyncio
import json

import aiohttp
import openai
import pytest

from pando_fleet.redis.client import connect
from tests.router.world import (
    Stream,
    chat,
    completion,
    fleet,
    never,
    reset,
    status,
    streaming,
    until,
)


async def leases(valkey_url: str, pool: str = "default") -> int:
    redis = connect(valkey_url)
    try:
        return int(await redis.zcard(f"pando:{{{pool}}}:leases"))
    finally:
        await redis.aclose()


async def no_lease_is_left(valkey_url: str) -> None:
    async def none_left() -> bool:
        return await leases(valkey_url) == 0

    await until(none_left, "all leases released")


async def test_request_bytes_and_headers_reach_the_replica_unchanged(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        body = b'{ "prompt":"h\\u00e9llo", "model" : "m", "unknown_field": [1, 2.50] }'
        await router.post("/v1/completions?x=1&y=%20", body, authorization="Bearer k", te="gzip")
        (received,) = a.received
        assert received.body == body
        assert received.path == "/v1/completions?x=1&y=%20"
        assert received.headers["authorization"] == "Bearer k"
        assert "te" not in received.headers


async def test_headers_with_underscores_end_at_the_router(valkey_url: str) -> None:
    """A gateway behind it may take them for those with hyphens."""
    async with fleet(valkey_url, "a") as (router, [a]):
        confusing = {"content_length": "1", "transfer_encoding": "chunked", "x_pando_tenant": "b"}
        answer = await router.post("/v1/completions", completion(), **confusing, **{"x-who": "me"})
        assert answer.status == 200
        assert a.received[0].headers["x-who"] == "me"
        assert not [name for name in a.received[0].headers if "_" in name]


async def test_client_that_accepts_no_compression_is_offered_none_upstream(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        body = json.dumps(completion()).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        assert b" 200 " in await reader.readline()
        writer.close()
        assert {"accept-encoding", "user-agent"}.isdisjoint(a.received[0].headers)


async def test_answer_keeps_status_and_headers_and_gets_the_routers(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = status(418, **{"x-engine": "test", "x-request-id": "the worker's"})
        answer = await router.post("/v1/completions", completion(), **{"x-request-id": "mine-1"})
        assert answer.status == 418
        assert answer.headers["x-engine"] == "test"
        assert answer.headers["x-request-id"] == "mine-1"
        assert answer.headers["x-pando-replica"] == "a"
        assert answer.headers["x-pando-matched-tokens"] == "0"
        assert a.received[0].headers["x-request-id"] == "mine-1"


async def test_request_id_that_is_not_sane_is_replaced(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        for sent in ("", "x" * 129, "a b", "tab\there"):
            answer = await router.post("/v1/completions", completion(), **{"x-request-id": sent})
            made = answer.headers["x-request-id"]
            assert made not in ("", sent)
            assert a.received[-1].headers["x-request-id"] == made


async def test_first_chunk_arrives_before_the_second_is_sent(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        async with streaming(router, a) as (stream, response):
            stream.put(b"data: 2\n\n")
            assert await response.content.readany() == b"data: 2\n\n"
            stream.end()
            assert await response.content.read() == b""
        await no_lease_is_left(valkey_url)


async def test_openai_client_streams_through_the_router(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = stream = Stream()
        for text in ("Hel", "lo"):
            delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            stream.put(b"data: " + json.dumps({**chunk, "choices": [delta]}).encode() + b"\n\n")
        stream.put(b"data: [DONE]\n\n")
        stream.end()
        async with openai.AsyncOpenAI(base_url=router.url + "/v1", api_key="none") as client:
            chunks = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            texts = [chunk.choices[0].delta.content async for chunk in chunks]
        assert texts == ["Hel", "lo"]


async def test_client_that_leaves_before_the_first_byte_cancels_the_replica(
    valkey_url: str,
) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = never
        request = asyncio.create_task(router.post("/v1/completions", completion()))
        await until(lambda: a.received, "the request at the replica")
        request.cancel()
        await until(lambda: a.cancelled == 1, "the replica's request cancelled")
        await no_lease_is_left(valkey_url)
        assert await router.metric("pando_router_client_disconnects_total") == 1
        assert await router.metric("pando_router_requests_in_flight") == 0


async def test_client_that_leaves_mid_stream_cancels_the_replica(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        async with streaming(router, a) as (_, response):
            assert await leases(valkey_url) == 1
            response.close()
        await until(lambda: a.cancelled == 1, "the replica's request cancelled")
        await no_lease_is_left(valkey_url)


async def test_slow_reader_slows_the_replica_down(valkey_url: str) -> None:
    """Without backpressure the router would swallow all of it."""
    chunk, chunks = b"x" * 65536, 2000
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = stream = Stream("text/plain")
        for _ in range(chunks):
            stream.put(chunk)
        stream.end()
        async with router.session.post(router.url + "/generate", json={"text": "x"}) as response:
            left = [len(stream)]

            def stands_still() -> bool:
                left.append(len(stream))
                return len(left) > 50 and len(set(left[-50:])) == 1

            await until(stands_still, "the replica waiting for the reader")
            assert len(stream) > chunks / 2
            assert len(await response.read()) == len(chunk) * chunks


FAILURES = {"refused": None, "reset": reset, "502": status(502), "503": status(503)}


@pytest.mark.parametrize("failure", FAILURES)
async def test_replica_that_fails_before_the_first_byte_is_replaced(
    valkey_url: str, failure: str
) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, b]):
        if (answer := FAILURES[failure]) is None:
            await a.refuse()
        else:
            a.answer = answer
        replicas = {
            (await router.post("/v1/completions", completion(f"{i}"))).replica for i in range(8)
        }
        assert replicas == {"b"}
        assert len(b.received) == 8
        reason = failure if failure.isdigit() else "connection"
        retries = f'pando_router_retries_total{{pool="default",reason="{reason}"}}'
        assert await router.metric(retries) >= 1
        await no_lease_is_left(valkey_url)


async def test_too_many_requests_of_all_replicas_is_the_clients_to_handle(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b") as (router, [a, b]):
        a.answer = b.answer = status(429, **{"retry-after": "7"})
        answer = await router.post("/v1/completions", completion())
        assert (answer.status, answer.headers["retry-after"]) == (429, "7")
        assert len(a.received) == len(b.received) == 1
        await no_lease_is_left(valkey_url)


async def test_when_all_tries_fail_the_client_learns_why_and_when_to_retry(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", "c", max_tries=2) as (router, [a, b, c]):
        a.answer = b.answer = c.answer = status(503)
        answer = await router.post("/v1/completions", completion())
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json["error"]["code"] == "replicas_failed"
        assert "answered 503" in answer.json["error"]["message"]
        assert len(a.received) + len(b.received) + len(c.received) == 2
        await no_lease_is_left(valkey_url)


async def test_event_stream_whose_replica_dies_ends_with_an_error_event(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = stream = Stream()
        stream.put(b"data: 1\n\n")
        stream.die()
        answer = await router.post("/v1/chat/completions", chat("hi", stream=True))
        first, error = [event for event in answer.body.split(b"\n\n") if event]
        assert first == b"data: 1"
        problem = json.loads(error.removeprefix(b"data: "))["error"]
        assert problem["type"] == "upstream_error"
        assert "'a'" in problem["message"]
        await no_lease_is_left(valkey_url)


async def test_plain_answer_whose_replica_dies_is_cut(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = stream = Stream("application/json")
        stream.put(b'{"half":')
        stream.die()
        with pytest.raises(aiohttp.ClientPayloadError):
            await router.post("/v1/chat/completions", chat("hi"))
        await no_lease_is_left(valkey_url)


async def test_silent_replica_ends_in_504(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", first_byte_timeout=0.2) as (router, [a]):
        a.answer = never
        answer = await router.post("/v1/completions", completion())
        assert answer.status == 504
        assert answer.json["error"]["code"] == "replica_silent"
        await until(lambda: a.cancelled == 1, "the replica's request cancelled")
        await no_lease_is_left(valkey_url)


async def test_requests_above_the_bound_get_503_and_the_others_their_answers(
    valkey_url: str,
) -> None:
    async with fleet(valkey_url, "a", max_requests=2) as (router, [a]):
        a.answer = stream = Stream("text/plain")
        running = [asyncio.create_task(router.post("/generate", {"text": f"{i}"})) for i in "12"]
        await until(lambda: len(a.received) == 2, "two requests at the replica")
        refused = await router.post("/generate", {"text": "3"})
        assert (refused.status, refused.json["error"]["code"]) == (503, "overloaded")
        stream.end()
        stream.end()
        assert [(await answer).status for answer in running] == [200, 200]
        assert (await router.get("/healthz")).status == 200


async def test_every_endpoint_is_forwarded_under_its_path(valkey_url: str) -> None:
    bodies = {
        "/v1/chat/completions": chat("hi"),
        "/v1/completions": completion(),
        "/generate": {"input_ids": [1, 2, 3]},
        "/tokenize": {"model": "m", "prompt": "x"},
        "/detokenize": {"tokens": [1, 2]},
    }
    async with fleet(valkey_url, "a") as (router, [a]):
        for path, body in bodies.items():
            assert (await router.post(path, body)).status == 200, path
        assert [received.path for received in a.received] == list(bodies)
        await no_lease_is_left(valkey_url)
