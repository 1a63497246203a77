"""Long bodies are parsed beside the event loop, the largest in a process of their own."""

import base64
import json
import os
import signal
import threading
from typing import Any

import psutil
import pytest

from pando_fleet.canonical.volatile import FORMS
from pando_fleet.http.body_process import answers
from pando_fleet.images.rule import ImageRule
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.endpoint import Endpoint
from pando_router.errors import ApiError
from pando_router.parsing.body_reader import THREAD_BYTES, THREAD_COMMAS, BodyReader
from pando_router.requests.request import KEYED_BYTES, Request
from tests.router.world import Replica, completion, serving
from tests.waiting import command_of, is_running, read_each, until_async

TEXT = "x" * 1_000_000
MANY = ["a"] * (THREAD_COMMAS + 2)
LARGE = "x" * THREAD_BYTES


async def test_only_long_bodies_leave_the_event_loop(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, threads = Endpoint.parse, []

    def parsed(self: Endpoint[Any], body: bytes, content_type: bytes = b"") -> Request:
        threads.append(threading.current_thread())
        return parse(self, body, content_type)

    monkeypatch.setattr(Endpoint, "parse", parsed)
    async with Replica(valkey_url, "a") as replica, serving(valkey_url) as router:
        await router.ready("a")
        for prompt in ("short", TEXT, ["a"] * 10_000, list(range(10_000))):
            answer = await router.post("/v1/completions", completion() | {"prompt": prompt})
            assert answer.status == 200, answer.body
            assert json.loads(replica.received[-1].body)["prompt"] == prompt
        wrong = await router.post("/v1/completions", completion() | {"prompt": [TEXT, {}]})
        assert wrong.status == 400 and wrong.json["error"]["param"] == "prompt[1]"
    main = threading.main_thread()
    assert [thread is main for thread in threads] == [True, False, False, False, False]


def readers() -> list[int]:
    """The processes for large bodies that this one has started."""
    children = psutil.Process().children()
    commands = read_each(children, command_of)
    return [one.pid for one, command in commands if answers.__name__ in command]


async def test_large_bodies_are_parsed_in_a_process_that_ends_with_the_router(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(self: Endpoint[Any], body: bytes, content_type: bytes = b"") -> Request:
        assert len(body) < 100, "parsed here"
        return parse(self, body, content_type)

    parse = Endpoint.parse
    monkeypatch.setattr(Endpoint, "parse", parsed)
    aliases = {"other": "m"}
    async with (
        Replica(valkey_url, "a") as replica,
        serving(valkey_url, aliases=aliases) as router,
    ):
        await router.ready("a")
        assert (await router.post("/v1/completions", completion())).status == 200
        assert not readers(), "small ones need none"
        for prompt in (MANY, LARGE):
            answer = await router.post("/v1/completions", completion() | {"prompt": prompt})
            assert answer.status == 200, answer.body
            assert json.loads(replica.received[-1].body) == completion() | {"prompt": prompt}
            body = {"model": "other", "prompt": prompt}
            assert (await router.post("/v1/completions", body)).status == 200
            assert json.loads(replica.received[-1].body) == {"model": "m", "prompt": prompt}
        wrong = await router.post("/v1/completions", completion() | {"prompt": [*MANY, {}]})
        assert wrong.status == 400
        assert wrong.json["error"]["param"] == f"prompt[{len(MANY)}]"
        [reader] = readers()
    await until_async(lambda: not is_running(reader), "it ended")


async def test_a_router_goes_on_when_its_process_for_large_bodies_is_killed(
    valkey_url: str,
) -> None:
    async with Replica(valkey_url, "a"), serving(valkey_url) as router:
        await router.ready("a")
        for _ in range(2):
            answer = await router.post("/v1/completions", completion() | {"prompt": MANY})
            assert answer.status == 200, answer.body
            [reader] = readers()
            await _kill(reader)


async def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await until_async(lambda: not is_running(pid), "it is dead")


def _image(letter: str) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(letter.encode() * 900_000).decode()
    return {"type": "image_url", "image_url": {"url": url}}


VOLATILE_LINE = FORMS[0].begins + "y" * 1000 + "\n"
PICTURES = [_image(letter) for letter in "abc"]

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "prompts": ("/v1/completions", {"prompt": MANY}),
    "ids": ("/v1/completions", {"prompt": list(range(THREAD_COMMAS + 2)), "stream": True}),
    "lists of ids": ("/v1/completions", {"prompt": [[1, 2, 3]] * 10_000}),
    "a text": ("/v1/completions", {"prompt": "é" * KEYED_BYTES, "user": "u"}),
    "a volatile first line": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "system", "content": VOLATILE_LINE + "x" * KEYED_BYTES},
                {"role": "user", "content": PICTURES},
            ]
        },
    ),
    "pairs": ("/v1/rerank", {"query": "q", "documents": MANY}),
    "a chat": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "x" * KEYED_BYTES},
                {"role": "user", "content": PICTURES},
                {"role": "user", "content": "and then?"},
            ],
            "max_tokens": 7,
        },
    ),
    "pictures": ("/v1/chat/completions", {"messages": [{"role": "user", "content": PICTURES}]}),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_large_body_is_placed_as_if_it_had_been_parsed_here(name: str) -> None:
    path, fields = BODIES[name]
    endpoint, body = ENDPOINTS[path], json.dumps({"model": "m", **fields}).encode()
    reader = BodyReader()
    try:
        there, here = await reader.parsed(endpoint, body, b""), endpoint.parse(body)
        assert readers(), "it is a large body"
    finally:
        reader.close()
    assert len(there.prefix) <= KEYED_BYTES
    if "volatile" in name:
        found_there, found_here = there.without_volatile_line(), here.without_volatile_line()
        assert found_there is not None and found_here is not None
        (there, form), (here, form_here) = found_there, found_here
        assert form == form_here
    else:
        assert there.without_volatile_line() is here.without_volatile_line() is None
    for rule in (None, ImageRule(kind="fixed", tokens=99)):
        if rule is not None:
            there, here = there.with_image_tokens(rule), here.with_image_tokens(rule)
        assert there.keys("m") == here.keys("m")
        assert there.prompt_bytes == here.prompt_bytes
        assert there.prompt_tokens(4.0) == here.prompt_tokens(4.0)
    there, here = there.with_cut_prefix(), here.with_cut_prefix()
    assert there == here


async def test_a_large_body_gets_the_error_that_it_would_get_here() -> None:
    reader, endpoint = BodyReader(), ENDPOINTS["/v1/chat/completions"]
    try:
        for body in (
            b'{"model": "m", "messages": [' + b"[" * 10_000 + b"," * THREAD_COMMAS * 2,
            json.dumps({"model": "m", "messages": MANY}).encode(),
            json.dumps({"model": "m", "messages": [], "tools": {"a": MANY}}).encode(),
            json.dumps({"messages": MANY}).encode(),
        ):
            with pytest.raises(ApiError) as there:
                await reader.parsed(endpoint, body, b"")
            with pytest.raises(ApiError) as here:
                endpoint.parse(body)
            assert there.value.status == here.value.status == 400
            assert there.value.body == here.value.body
    finally:
        reader.close()
