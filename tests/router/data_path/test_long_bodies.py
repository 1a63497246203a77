"""Long bodies are parsed beside the event loop."""

import json
import threading
from typing import Any

import pytest

from pando_router.endpoints.endpoint import Endpoint
from pando_router.requests.request import Request
from tests.router.world import Replica, completion, serving

TEXT = "x" * 1_000_000


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
