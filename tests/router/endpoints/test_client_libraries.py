"""OpenAI's and Anthropic's own libraries with the router: answers, streams and errors."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest
from aiohttp import web
from openai import AsyncOpenAI

from pando_fleet.records.homes import Homes
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.tenants.tenants_world import ADMIN, bearer, key_file
from tests.router.world import Replica, RouterClient, Stream, fleet, redis_is, serving, until

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "It rains."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 3},
}
TURN: Any = {"role": "user", "content": "hi"}


def response(name: str, text: str = "It rains.") -> dict[str, Any]:
    said = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": name,
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [said],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


async def say_message(request: web.Request) -> web.StreamResponse:
    if request.path.endswith("/count_tokens"):
        return web.json_response({"input_tokens": 7})
    return web.json_response(MESSAGE)


async def say_response(request: web.Request) -> web.StreamResponse:
    return web.json_response(response("resp_1"))


def openai_client(router: RouterClient) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=0)


def anthropic_client(library: Any, router: RouterClient) -> "AsyncAnthropic":
    client: AsyncAnthropic = library.AsyncAnthropic(
        base_url=router.url, api_key="none", max_retries=0
    )
    return client


def events(*bodies: dict[str, Any]) -> bytes:
    lines = (f"event: {body['type']}\ndata: {json.dumps(body)}\n\n" for body in bodies)
    return "".join(lines).encode()


async def test_messages_through_anthropics_library(valkey_url: str, anthropic: Any) -> None:
    async with (
        Replica(valkey_url, "a", model="llama") as a,
        serving(valkey_url, aliases={"claude-x": "llama"}) as router,
        anthropic_client(anthropic, router) as client,
    ):
        await router.ready("a")
        a.answer = say_message
        name = {"x-request-id": "turn-1"}
        message = await client.messages.create(
            model="claude-x", max_tokens=9, messages=[TURN], extra_headers=name
        )
        assert message._request_id == a.received[0].headers["x-request-id"] == "turn-1"
        assert [block.model_dump()["text"] for block in message.content] == ["It rains."]
        counted = await client.messages.count_tokens(model="claude-x", messages=[TURN])
        assert counted.input_tokens == 7
        assert {json.loads(r.body)["model"] for r in a.received} == {"llama"}

        a.answer = stream = Stream()
        delta = {"type": "text_delta", "text": "It rains."}
        stream.put(
            events(
                {"type": "message_start", "message": MESSAGE | {"content": []}},
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "text", "text": ""},
                },
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_stop"},
            )
        )
        stream.end()
        async with client.messages.stream(
            model="claude-x", max_tokens=9, messages=[TURN]
        ) as streamed:
            assert await streamed.get_final_text() == "It rains."


async def test_errors_of_messages_are_those_that_anthropics_library_knows(
    valkey_url: str, anthropic: Any
) -> None:
    async with (
        Replica(valkey_url, "a", endpoints=("/v1/messages",)) as a,
        serving(valkey_url) as router,
        anthropic_client(anthropic, router) as client,
    ):
        await router.ready("a")
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await client.messages.create(model="nobody", max_tokens=9, messages=[TURN])
        assert unknown.value.body == {
            "type": "error",
            "error": {
                "type": "not_found_error",
                "message": "model 'nobody' does not exist; there is 'm'",
            },
            "request_id": unknown.value.request_id,
        }
        assert unknown.value.request_id == unknown.value.response.headers["x-request-id"]
        with pytest.raises(anthropic.NotFoundError, match="no replica of model 'm' serves"):
            await client.messages.count_tokens(model="m", messages=[TURN])
        wrong: Any = "hi"
        with pytest.raises(anthropic.BadRequestError, match="messages must be a list"):
            await client.messages.create(model="m", max_tokens=9, messages=wrong)

        a.answer = stream = Stream()
        stream.put(events({"type": "message_start", "message": MESSAGE | {"content": []}}))
        stream.die()
        with pytest.raises(anthropic.APIStatusError, match="was lost mid-stream"):
            async for _ in await client.messages.create(
                model="m", max_tokens=9, messages=[TURN], stream=True
            ):
                pass


async def test_a_response_goes_on_at_the_replica_that_remembers_it_through_any_router(
    valkey_url: str,
) -> None:
    """Streamed or not. Other replicas do not know the response that `previous_response_id`
    names."""

    def remembers(name: str) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            before = body.get("previous_response_id", f"resp_{name}_0")
            owner, number = before.removeprefix("resp_").split("_")
            if owner != name:
                return web.json_response({"error": {"message": "no such response"}}, status=404)
            body = response(f"resp_{owner}_{int(number) + 1}", f"{name} {number}")
            if "stream" not in request.query:
                return web.json_response(body)
            data = events({"type": "response.created", "sequence_number": 0, "response": body})
            return web.Response(body=data, content_type="text/event-stream")

        return answer

    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        Replica(valkey_url, "c") as c,
        serving(valkey_url, policy="round_robin") as router,
        serving(valkey_url, policy="round_robin") as other,
        openai_client(router) as client,
        openai_client(other) as elsewhere,
        aclosing(connect(valkey_url)) as redis,
    ):

        async def is_remembered() -> bool:  # the router writes it while the answer is relayed
            return await Homes(redis).find("default", last) is not None

        for replica in (a, b, c):
            replica.answer = remembers(replica.name)
        await router.ready("a", "b", "c")
        await other.ready("a", "b", "c")
        for streamed in (False, True):
            for _ in range(3):
                query = {"stream": "1"} if streamed else {}
                first = await client.responses.with_raw_response.create(
                    model="m", input="hi", extra_query=query
                )
                named = re.search(r"resp_(\w)_1", first.text)
                assert named
                owner, last = named[1], named[0]
                for turn, asked in enumerate((client, elsewhere, elsewhere), start=1):
                    if turn == 2:  # the router that relayed the response knows at once
                        await until(is_remembered, "the response's replica in Redis")
                    said = await asked.responses.create(
                        model="m", input="and then?", previous_response_id=last
                    )
                    assert said.output_text == f"{owner} {turn}"
                    last = said.id


@asynccontextmanager
async def one_keeps(
    valkey_url: str, name: str
) -> AsyncIterator[tuple[Replica, Replica, RouterClient, AsyncOpenAI]]:
    """The replica that keeps the response of this name, one that joined later, and a router."""
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url) as router,
        openai_client(router) as client,
    ):
        await router.ready("a")
        a.answer = say_response
        assert (await client.responses.create(model="m", input="hi")).id == name
        async with Replica(valkey_url, "b") as b:
            b.answer = say_response
            await router.ready("b")
            yield a, b, router, client


async def test_a_response_whose_replica_is_gone_is_answered_by_another(valkey_url: str) -> None:
    async with one_keeps(valkey_url, "resp_1") as (a, b, router, client):
        await a.say(state=ReplicaState.DRAINING)
        await router.ready("a", state="draining")
        answer = await client.responses.create(
            model="m", input="more", previous_response_id="resp_1"
        )
        assert answer.output_text == "It rains."
        assert len(b.received) == 1


async def test_a_response_whose_replica_is_not_ready_for_now_is_asked_for_again(
    valkey_url: str,
) -> None:
    """Another replica would say, for good, that it does not know the response."""
    more: dict[str, Any] = {"model": "m", "input": "more", "previous_response_id": "resp_1"}
    async with one_keeps(valkey_url, "resp_1") as (a, b, router, client):
        await a.say(state=ReplicaState.STALLED)
        await router.ready("a", state="stalled")
        with pytest.raises(openai.InternalServerError, match="response, is stalled") as refused:
            await client.responses.create(**more)
        assert refused.value.status_code == 503
        await a.say(state=ReplicaState.READY)
        await router.ready("a")
        await client.responses.create(**more)
        assert len(b.received) == 0


async def test_an_earlier_response_is_not_looked_for_at_random_while_redis_is_away(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey(port=free_port())
    async with (
        fleet(server.url, "a", "b") as (router, replicas),
        openai_client(router) as client,
    ):
        for replica in replicas:
            replica.answer = say_response
        server.stop()
        await redis_is(router, "away")
        with pytest.raises(openai.InternalServerError, match="redis is away"):
            await client.responses.create(model="m", input="hi", previous_response_id="resp_1")
        assert not any(replica.received for replica in replicas)
        await client.responses.create(model="m", input="hi")


async def test_a_stored_response_is_read_cancelled_and_deleted_where_it_is(
    valkey_url: str,
) -> None:
    """Through any router. If the replica does not know a response, its 404 is passed on."""

    def keeps(name: str) -> Any:
        kept: dict[str, dict[str, Any]] = {}

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.path == "/v1/responses":
                body = response(f"resp_{name}_{len(kept)}", name)
                kept[body["id"]] = body
                return web.json_response(body)
            named, _, rest = request.path.removeprefix("/v1/responses/").partition("/")
            if named not in kept:
                error = {"message": f"{name} knows no {named}", "type": "invalid_request_error"}
                return web.json_response({"error": error}, status=404)
            if rest == "input_items":
                return web.json_response({"object": "list", "data": [], "has_more": False})
            if rest == "cancel":
                kept[named]["status"] = "cancelled"
            elif request.method == "DELETE":
                del kept[named]
                return web.json_response({"id": named, "deleted": True})
            return web.json_response(kept[named])

        return answer

    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url, policy="round_robin") as router,
        serving(valkey_url, policy="round_robin") as other,
        openai_client(router) as client,
        openai_client(other) as elsewhere,
    ):
        for replica in (a, b):
            replica.answer = keeps(replica.name)
        await router.ready("a", "b")
        await other.ready("a", "b")
        said = [await client.responses.create(model="m", input="hi") for _ in range(4)]
        assert {one.output_text for one in said} == {"a", "b"}
        for one in said:
            again = await elsewhere.responses.retrieve(one.id)
            assert again.output_text == one.output_text
            items = await elsewhere.responses.input_items.list(one.id)
            assert items.data == []
            assert (await elsewhere.responses.cancel(one.id)).status == "cancelled"
            await elsewhere.responses.delete(one.id)
            with pytest.raises(openai.NotFoundError, match=f"{one.output_text} knows no"):
                await client.responses.retrieve(one.id)
        with pytest.raises(openai.NotFoundError, match="no replica keeps this response"):
            await client.responses.retrieve("resp_nobody")
        wrong = await router.request("PUT", f"/v1/responses/{said[0].id}")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, DELETE")
        assert (await router.get("/v1/responses/x/y")).status == 404
        label = 'path="/v1/responses/{response_id}",status="404"'
        assert await router.metric(f"pando_router_requests_total{{{label}}}") == 6


async def test_a_stored_response_is_its_tenants_own(valkey_url: str, tmp_path: Path) -> None:
    file = key_file(tmp_path, a={}, b={})
    async with fleet(valkey_url, "r", key=ADMIN, api_keys=file) as (router, [replica]):
        replica.answer = say_response
        made = await router.post("/v1/responses", {"model": "m", "input": "hi"}, **bearer("a"))
        path = f"/v1/responses/{made.json['id']}"
        for key, status in (("a", 200), ("b", 404), ("nobody", 401)):
            assert (await router.request("GET", path, headers=bearer(key))).status == status


async def test_a_stored_response_whose_replica_does_not_answer_is_an_error_that_says_so(
    valkey_url: str,
) -> None:
    async with fleet(valkey_url, "a") as (router, [a]):
        a.answer = say_response
        made = await router.post("/v1/responses", {"model": "m", "input": "hi"})
        await a.refuse()
        lost = await router.get(f"/v1/responses/{made.json['id']}")
        assert (lost.status, lost.json["error"]["code"]) == (502, "replica_lost")


async def test_openais_library_sees_what_is_wrong(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        serving(valkey_url) as router,
        openai_client(router) as client,
    ):
        await router.ready("a")
        wrong: Any = {"type": "function"}
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="m", messages=[TURN], tools=wrong)
        assert refused.value.param == "tools"
        with pytest.raises(openai.BadRequestError) as odd:
            await client.responses.create(model="m", input=[{"role": "user", "content": 5}])  # type: ignore[list-item, misc]
        assert odd.value.param == "input[0].content"
