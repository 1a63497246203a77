"""The fleet that most end-to-end tests share, and its clients."""

import signal
from collections.abc import AsyncIterator, Iterator

import aiohttp
import openai
import pytest

from tests.e2e.up_process import UpProcess
from tests.router.control.browser import browser
from tests.waiting import PATIENCE_S

__all__ = ["browser", "client", "http", "up"]

MODEL = "pando-tiny"


@pytest.fixture(scope="session")
def up() -> Iterator[UpProcess]:
    """`pando up` with two workers; the router logs all requests, not a sample."""
    environment = {
        "PANDO_ROUTER_ACCESS_LOG_SAMPLE": "1",
        "PANDO_WORKER_ADMIN_TOKEN": "of-these-workers",
    }
    with UpProcess(environment=environment) as process:
        yield process.wait_ready()
        process.send(signal.SIGINT)
        assert process.wait_end() == 0, process.output


@pytest.fixture
async def client(up: UpProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's own client, without its retries."""
    async with openai.AsyncOpenAI(
        base_url=f"{up.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
    ) as client:
        yield client


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
