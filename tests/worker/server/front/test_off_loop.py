"""Large requests hold the event loop no longer than small ones, in CPU time of its thread."""

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi import APIRouter, FastAPI, Request

from pando_fleet.http import off_loop as turns
from pando_fleet.http.off_loop import let_the_loop_turn, off_loop
from pando_worker.server import endpoints
from pando_worker.server.front.json_bodies import JsonRoute, read_json
from pando_worker.server.front.json_pieces import read_in_pieces, read_long
from pando_worker.server.protocol.chats.anthropic import MessagesRequest
from pando_worker.server.protocol.chats.chat import ChatRequest, messages_of
from pando_worker.server.protocol.pieces import PIECE
from pando_worker.server.text.tokenizer import Tokenizer
from tests.worker.server.process.worker_process import MODEL

COUNT = 20_000
TURNS = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(COUNT - 1)]
FIELDS = {"model": "m", "max_tokens": 1, "messages": TURNS}
BODY = json.dumps(FIELDS).encode()
SHARE = 0.1  # of what the work takes at once, at most


class Measured:
    """A coroutine whose longest step is measured."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self.longest_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        while True:
            started = time.thread_time()
            try:
                waited = next(steps)
            except StopIteration as end:
                return end.value
            finally:
                self.longest_s = max(self.longest_s, time.thread_time() - started)
            with suppress(Exception):  # that of a future, which raises it in the next step
                yield waited


def cpu_s(work: Callable[[], Any]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def app() -> FastAPI:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/chat")
    async def chat(body: ChatRequest) -> int:
        return len(body.messages)

    @router.post("/messages")
    async def messages(body: MessagesRequest, request: Request) -> int:
        made = await off_loop(body.as_chat, len(await request.body()))
        return len(made.messages)

    made = FastAPI()
    made.include_router(router)
    return made


async def post(path: str, body: bytes) -> tuple[float, bytes]:
    """The longest step, and the answer's body."""
    sent = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    measured = Measured(app()(scope, receive, send))
    await measured
    return measured.longest_s, b"".join(sent)


@pytest.mark.parametrize(
    ("path", "at_once"),
    [
        ("/chat", lambda: ChatRequest.model_validate(read_json(BODY))),
        ("/messages", lambda: MessagesRequest.model_validate(read_json(BODY)).as_chat()),
    ],
)
async def test_a_large_chat_is_read_beside_the_loop(
    path: str, at_once: Callable[[], object]
) -> None:
    await post(path, BODY.replace(b'"x"', b'"y"'))  # what the first use loads
    whole = cpu_s(at_once)
    longest, answer = await post(path, BODY)
    assert answer == str(len(TURNS)).encode()
    assert longest < whole * SHARE


async def test_a_large_body_that_is_wrong_gets_the_same_error_as_a_small_one() -> None:
    async def errors(count: int) -> Any:
        body = {"messages": [*TURNS[:count], {"role": 1, "content": "x"}], "model": "m"}
        _, answer = await post("/chat", json.dumps(body).encode())
        [error] = json.loads(answer)["detail"]
        return error["type"], error["loc"]

    assert await errors(2) == ("string_type", ["body", "messages", 2, "role"])
    assert await errors(5000) == ("string_type", ["body", "messages", 5000, "role"])


class Turns:
    """Counts those of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._turn()

    def _turn(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        self._next.cancel()


async def test_a_thread_waits_for_a_turn_of_the_loop_after_each_millisecond() -> None:
    loop = Turns()

    def work() -> list[int]:
        found = []
        for _ in range(20):
            end = time.monotonic() + 0.0011
            while time.monotonic() < end:
                pass
            before = loop.count
            let_the_loop_turn()
            found.append(loop.count - before)
        return found

    assert min(await off_loop(work, 1, inline_bytes=0)) >= 1
    loop.end()


@pytest.mark.parametrize(
    ("read", "value", "least"),
    [
        (read_in_pieces, ["x"] * 100, 100),
        (read_in_pieces, {str(i): None for i in range(100)}, 100),
        (read_in_pieces, list(range(1000, 18_000)), 17_000 * 5 // 8192),
        (read_long, {"text": "x" * (1 << 20)}, 8),
    ],
    ids=["texts", "fields", "numbers", "a long text"],
)
async def test_the_loop_turns_while_json_is_read(
    read: Callable[[bytes], object],
    value: object,
    least: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "_SWITCH_S", 0.0)
    data = json.dumps(value).encode()
    loop = Turns()
    assert await off_loop(lambda: read(data), len(data), inline_bytes=0) == value
    loop.end()
    assert loop.count >= least


async def test_the_loop_turns_while_a_chat_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_SWITCH_S", 0.0)
    loop = Turns()
    chat = await off_loop(lambda: ChatRequest.model_validate(FIELDS), len(BODY))
    loop.end()
    assert len(chat.messages) == len(TURNS)
    assert loop.count >= len(TURNS) // PIECE


def test_work_ends_although_its_loop_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_SWITCH_S", 0.0)  # a turn is wanted at once
    stopped = threading.Event()

    def work() -> None:
        stopped.wait()
        let_the_loop_turn()

    async def begin() -> "asyncio.Future[None]":
        found = asyncio.ensure_future(off_loop(work, 1, inline_bytes=0))
        await asyncio.sleep(0)  # its thread has the work
        return found

    loop = asyncio.new_event_loop()
    pending = loop.run_until_complete(begin())
    stopped.set()
    turns._THREAD.submit(int).result(60)  # the thread is free again
    loop.run_until_complete(pending)
    loop.close()


def test_python_looks_for_no_garbage_among_messages() -> None:
    """A full collection takes 11 ms for 26,000 models."""
    messages = ChatRequest.model_validate(FIELDS).messages
    assert len(messages) == len(TURNS)
    assert sum(gc.is_tracked(message) for message in messages) == 0


async def test_a_templates_form_of_a_large_chat_is_made_beside_the_loop() -> None:
    messages = 5 * ChatRequest.model_validate(FIELDS).messages
    tokenizer = Tokenizer(MODEL)
    whole = cpu_s(lambda: messages_of(messages, ""))
    measured = Measured(tokenizer.run(lambda: messages_of(messages, ""), [messages, None]))
    assert len(await measured) == 5 * len(TURNS)
    assert measured.longest_s < whole * SHARE


@pytest.mark.parametrize("module", [one.name for one in iter_modules(endpoints.__path__)])
def test_no_endpoint_reads_json_in_the_loop(module: str) -> None:
    made = import_module(f"{endpoints.__name__}.{module}")
    service = MagicMock()  # kept by the routes, which nobody calls
    reads = [route for route in made.routes(service).routes if route.body_field]
    assert [route.path for route in reads if not isinstance(route, JsonRoute)] == []
