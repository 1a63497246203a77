"""Calls to a worker over HTTP, whatever it answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from pando_operator.adapters.calls import LOAD_S
from pando_operator.worker_client import WorkerClient, WorkerError

IDENTITY = "0123456789abcdef" * 2


@asynccontextmanager
async def answering(
    status: int, body: str, *, identity: str = "", after: float = 0.0
) -> AsyncIterator[str]:
    """The URL of a worker that always answers so."""

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(after)
        headers = {"x-pando-adapter-identity": identity} if identity else {}
        return web.Response(status=status, text=body, headers=headers)

    application = web.Application()
    application.router.add_post("/{rest:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[WorkerClient]:
    one = WorkerClient()
    yield one
    await one.close()


async def refusal(client: WorkerClient, status: int, body: str) -> str:
    async with answering(status, body) as url:
        with pytest.raises(WorkerError) as error:
            await client.load(url, "a", "org/a", pin=False, limit_s=LOAD_S)
    return str(error.value)


async def test_a_load_answers_with_the_identity(client: WorkerClient) -> None:
    async with answering(200, "Success", identity=IDENTITY) as url:
        assert await client.load(url, "a", "org/a", pin=True, limit_s=LOAD_S) == IDENTITY


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, '{"error": {"message": "rank 512 is\\nabove 64"}}', "rank 512 is above 64"),
        (404, '{"error": {"message": "there is no POST /v1/x"}}', "there is no POST /v1/x"),
        (500, "<html>", "it answered with status 500"),
        (500, '["error"]', "it answered with status 500"),
        (500, '{"error": "x"}', "it answered with status 500"),
        (302, "", "it answered with status 302"),
        (200, "ok", "it loaded the adapter, but did not answer with its identity"),
    ],
)
async def test_other_answers_are_errors_in_words(
    client: WorkerClient, status: int, body: str, words: str
) -> None:
    assert (await refusal(client, status, body)).startswith(words)


async def test_a_long_message_is_cut(client: WorkerClient) -> None:
    said = await refusal(client, 400, '{"error": {"message": "' + "x" * 5000 + '"}}')
    assert len(said) == 400


async def test_an_adapter_that_is_not_there_is_unloaded_already(client: WorkerClient) -> None:
    async with answering(404, '{"error": {"message": "not loaded"}}') as url:
        await client.unload(url, "a", limit_s=5)
    async with answering(503, '{"error": {"message": "shutting down"}}') as url:
        with pytest.raises(WorkerError, match="shutting down"):
            await client.unload(url, "a", limit_s=5)


async def test_an_identity_that_is_none_is_an_error(client: WorkerClient) -> None:
    async with answering(200, "Success", identity="short") as url:
        with pytest.raises(WorkerError, match="did not answer with its identity"):
            await client.load(url, "a", "org/a", pin=False, limit_s=LOAD_S)


async def test_calls_have_an_end(client: WorkerClient) -> None:
    async with answering(200, "{}", after=30) as url:
        with pytest.raises(WorkerError, match=r"it did not answer within 0\.1 s"):
            await client.unload(url, "a", limit_s=0.1)
    with pytest.raises(WorkerError, match="it cannot be reached"):
        await client.unload("http://127.0.0.1:9", "a", limit_s=5)
