"""One worker on the stand-in scheduler, shared by all tests that do not change its state."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import openai
import pytest

from tests.worker.server.process.worker_process import WorkerProcess


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that use a worker's process as end-to-end tests."""
    for item in items:
        if {"worker", "rich_worker"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("e2e")


@pytest.fixture(scope="session")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(max_body_bytes=100_000) as worker:
        yield worker


@pytest.fixture(scope="session")
def rich_worker() -> Iterator[WorkerProcess]:
    """A worker with all features that are off by default or that the shipped model lacks."""
    with WorkerProcess.start(
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
        schedule_policy="priority",
        compat_metrics=True,
        request_timeout_seconds=300,
        context_length=2048,
    ) as worker:
        yield worker


@pytest.fixture
async def rich_http(rich_worker: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(rich_worker.url) as session:
        yield session


@pytest.fixture
async def rich_client(rich_worker: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with rich_worker.client() as client:
        yield client


@pytest.fixture
async def http(worker: WorkerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(worker.url) as session:
        yield session


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[openai.AsyncOpenAI]:
    async with worker.client() as client:
        yield client
