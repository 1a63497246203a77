"""Bodies are read as Python's own reader reads them."""

import gc
import json
import math
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st

from pando_worker.server.app import answer_errors
from pando_worker.server.errors import bad_request
from pando_worker.server.front.json_bodies import json_route, read_json
from pando_worker.server.protocol.chats.chat import ChatRequest

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(value=VALUES, ascii_only=st.booleans())
def test_any_value_is_read(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert_equal(read_json(data), json.loads(data))


def assert_equal(found: Any, expected: Any) -> None:
    """Also in kind: 1.0 is not 1."""
    assert repr(found) == repr(expected)


@given(text=st.from_regex(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_numbers_are_read_to_the_last_bit(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(json.JSONDecodeError):
            read_json(text.encode())
    else:
        assert_equal(read_json(text.encode()), expected)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": 1e999, "b": -1e999}',
        b"\xef\xbb\xbf{}",
        '{"a": "é"}'.encode("utf-16"),
        b" [1 , 2 ]\n",
    ],
)
def test_odd_bodies_are_read_alike(data: bytes) -> None:
    assert_equal(read_json(data), json.loads(data))


def test_what_is_not_a_number_is_left_to_validation() -> None:
    assert math.isnan(read_json(b"NaN"))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1,]", b'{"a": 01}', b'{"a": "\x01"}', b"{} x", b"{'a': 1}", b"\xff", b"nul"],
)
def test_errors_are_those_of_pythons_reader(data: bytes) -> None:
    with pytest.raises(ValueError) as expected:
        json.loads(data)
    with pytest.raises(type(expected.value)) as found:
        read_json(data)
    assert str(found.value) == str(expected.value)


def refuse(data: bytes) -> None:
    if b"refused" in data:
        raise bad_request("the body is refused before it is read", "messages")


async def status_of(app: FastAPI, body: bytes) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/chat",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {"request_id": "a"},
    }
    await app(scope, receive, send)
    [status] = statuses
    return status


@pytest.mark.parametrize(
    "body", [b"{", b'{"messages": 5}', b'{"messages": ["refused"]}', b"[" * 5000]
)
async def test_a_refused_body_waits_for_no_garbage_collection(body: bytes) -> None:
    router, app = APIRouter(route_class=json_route(refuse)), FastAPI()

    @router.post("/chat")
    async def chat(body: ChatRequest) -> None: ...

    app.include_router(router)
    answer_errors(app)
    gc.collect()
    gc.disable()
    try:
        assert await status_of(app, body) == 400
        requests = [one for one in gc.get_objects() if isinstance(one, Request)]
        assert requests == []
    finally:
        gc.enable()
