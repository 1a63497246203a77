"""The operator's calls to a real worker."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pando_operator.adapters.calls import LOAD_S
from pando_operator.worker_client import WorkerClient, WorkerError
from tests.worker.server.process.tiny_adapters import TinyAdapter
from tests.worker.server.process.worker_process import WorkerProcess

pytestmark = pytest.mark.e2e

TOKEN = "the-workers"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        name: str(TinyAdapter(folder / name, seed, rank=4).path)
        for seed, name in enumerate(("one", "two", "three"))
    }


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    """Two slots: one for a pin, one for all others."""
    with WorkerProcess.start(
        stand_in=False, threads=1, admin_token=TOKEN, max_loras=2, max_lora_rank=16
    ) as one:
        yield one


@pytest.fixture
async def client() -> AsyncIterator[WorkerClient]:
    one = WorkerClient()
    yield one
    await one.close()


async def served(url: str) -> dict[str, Any]:
    """Name and source of each adapter."""
    async with aiohttp.ClientSession(url) as http, http.get("/v1/models") as answer:
        cards = (await answer.json())["data"]
    return {card["id"]: card["root"] for card in cards if card.get("parent")}


async def test_adapters_are_loaded_pinned_replaced_and_unloaded(
    client: WorkerClient, worker: WorkerProcess, sources: dict[str, str]
) -> None:
    url = worker.url
    first = await client.load(url, "a", sources["one"], pin=True, limit_s=LOAD_S, token=TOKEN)
    assert (
        await client.load(url, "a", sources["one"], pin=True, limit_s=LOAD_S, token=TOKEN) == first
    )  # repeating does no harm
    await client.load(url, "b", sources["three"], pin=False, limit_s=LOAD_S, token=TOKEN)
    second = await client.load(url, "a", sources["two"], pin=True, limit_s=LOAD_S, token=TOKEN)
    assert second != first
    assert await served(url) == {"a": sources["two"], "b": sources["three"]}
    await client.unload(url, "a", limit_s=30, token=TOKEN)
    await client.unload(url, "a", limit_s=30, token=TOKEN)
    assert await served(url) == {"b": sources["three"]}


async def test_a_refusal_is_in_the_workers_words(
    client: WorkerClient, worker: WorkerProcess, tmp_path: Path
) -> None:
    quick: Any = {"pin": False, "limit_s": LOAD_S, "token": TOKEN}
    with pytest.raises(WorkerError, match="adapter_config"):
        await client.load(worker.url, "c", str(tmp_path), **quick)
    with pytest.raises(WorkerError, match="name of the base model"):
        await client.load(
            worker.url, "pando-tiny", str(tmp_path), pin=False, limit_s=LOAD_S, token=TOKEN
        )


async def test_a_worker_with_a_token_refuses_calls_without_it(
    client: WorkerClient, worker: WorkerProcess, sources: dict[str, str]
) -> None:
    with pytest.raises(WorkerError, match="admin_token"):
        await client.load(worker.url, "d", sources["one"], pin=False, limit_s=LOAD_S)
    with pytest.raises(WorkerError, match="admin_token"):
        await client.unload(worker.url, "d", limit_s=30)
