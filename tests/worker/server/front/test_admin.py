"""The endpoints that change a worker for all of its clients."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp
import pytest
from pydantic import SecretStr

from pando_worker.server.front.admin import PATHS, Admin
from pando_worker.settings import WorkerSettings
from tests.waiting import PATIENCE_S
from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.server.stand_in import Trick

TOKEN = "a-token"
KEYS = [{"authorization": f"Bearer {TOKEN}"}, {"x-api-key": TOKEN}]
OTHERS = [{}, {"authorization": "Bearer a-toke"}, {"x-api-key": "A-token"}]


@pytest.fixture(scope="module")
def guarded() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(admin_token=TOKEN) as worker:
        yield worker


@pytest.mark.e2e
@pytest.mark.parametrize("path", sorted(PATHS))
async def test_without_the_token_there_is_a_401(guarded: WorkerProcess, path: str) -> None:
    async with aiohttp.ClientSession(guarded.url) as http:
        for headers in OTHERS:
            async with http.post(path, json={"rid": "x"}, headers=headers) as answer:
                assert answer.status == 401, await answer.text()
                assert (await answer.json())["error"]["code"] == "invalid_api_key"
        for headers in KEYS:
            async with http.post(path, json={"rid": "x"}, headers=headers) as answer:
                assert answer.status != 401, await answer.text()


@pytest.mark.e2e
async def test_only_the_token_ends_another_clients_stream(guarded: WorkerProcess) -> None:
    sampling = {"seed": Trick.SLOW, "max_new_tokens": 200}
    body = {"text": "a b c", "stream": True, "rid": "mine", "sampling_params": sampling}
    async with (
        aiohttp.ClientSession(guarded.url) as http,
        http.post("/generate", json=body) as stream,
    ):
        await stream.content.readany()
        async with http.post("/abort_request", json={"rid": "mine"}) as answer:
            assert answer.status == 401
        async with http.post("/abort_request", json={"rid": "mine"}, headers=KEYS[0]) as answer:
            assert await answer.json() == {"aborted": 1}
        assert b'"abort"' in await stream.read()


@pytest.mark.e2e
async def test_the_refusal_does_not_wait_for_the_body(guarded: WorkerProcess) -> None:
    where = urlsplit(guarded.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"POST /flush_cache HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert (await reader.readline()).split()[1] == b"401"
    writer.close()


@pytest.mark.e2e
async def test_no_report_shows_the_token(guarded: WorkerProcess) -> None:
    async with aiohttp.ClientSession(guarded.url) as http:
        for path in ("/server_info", "/metrics", "/openapi.json"):
            async with http.get(path) as answer:
                assert TOKEN not in await answer.text()


@pytest.mark.parametrize(
    ("host", "made"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("::1", False),
        ("localhost", False),
        ("::", True),
        ("0.0.0.0", True),
        ("10.0.0.1", True),
        ("worker.example", True),
    ],
)
def test_a_worker_that_others_reach_makes_a_token_of_its_own(host: str, made: bool) -> None:
    one, other = (Admin.of(WorkerSettings(model="m", host=host)) for _ in range(2))
    assert bool(one.token) is made
    assert not made or (len(one.token) >= 43 and one.token != other.token)


def test_a_given_token_holds_everywhere() -> None:
    settings = WorkerSettings(model="m", host="127.0.0.1", admin_token=SecretStr(TOKEN))
    assert Admin.of(settings).token == TOKEN
