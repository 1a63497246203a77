"""A worker's process with settings other than the defaults, observed from outside.

Other tests cover what each setting does; these show that it reaches its place.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.worker.server.process.worker_process import WorkerProcess, metric, until

pytestmark = pytest.mark.e2e

LOAD = re.compile(
    r"(\d+) running, \d+ waiting, KV pool .* cached,"
    r" .* of (\d+) prompt tokens from the cache, \d+ output tokens/s"
)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def overlapped(traces: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False,
        threads=1,
        cpu_kernels="off",
        page_size=4,
        max_total_tokens=402,
        context_length=128,
        max_running_requests=2,
        host_memory_gib=0.001,
        host_write="write-through-selective",
        log_every_steps=1,
        profile=str(traces / "overlapped"),
    ) as worker:
        yield worker


@pytest.fixture(scope="module")
def sequential(traces: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False,
        threads=1,
        cpu_kernels="off",
        model_impl="transformers",
        page_size=8,
        max_total_tokens=96,
        eviction_policy="fifo",
        overlap_schedule=False,
        log_every_steps=0,
        profile=str(traces / "sequential"),
    ) as worker:
        yield worker


async def generate(worker: WorkerProcess, prompt: Sequence[int], **sampling: Any) -> list[int]:
    """The cached prompt tokens of each choice."""
    sampling = {"max_new_tokens": 1, "ignore_eos": True, "n": 1} | sampling
    body = {"input_ids": list(prompt), "sampling_params": sampling}
    async with (
        aiohttp.ClientSession(worker.url) as http,
        http.post("/generate", json=body) as answer,
    ):
        found = await answer.json()
        assert answer.status == 200, found
    choices = found if isinstance(found, list) else [found]
    return [choice["meta_info"]["cached_tokens"] for choice in choices]


async def test_sizes_are_those_set(overlapped: WorkerProcess) -> None:
    async with aiohttp.ClientSession(overlapped.url) as http:
        await until(lambda: _is(http, "pando_worker_kv_capacity_tokens", 400))
    with pytest.raises(AssertionError, match="128"):
        await generate(overlapped, range(3, 100), max_new_tokens=32)
    with pytest.raises(AssertionError, match="runs 2 requests at once"):
        await generate(overlapped, [3], n=3)
    prompt = range(100, 123)
    assert await generate(overlapped, prompt) == [0]
    assert await generate(overlapped, prompt) == [20]  # whole pages of 4


async def test_what_is_hit_twice_is_written_through_to_the_host(overlapped: WorkerProcess) -> None:
    name = "pando_worker_host_stored_tokens_total"
    async with aiohttp.ClientSession(overlapped.url) as http:
        stored = await metric(http, name)
        for _ in range(3):
            await generate(overlapped, range(200, 220))
        await until(lambda: _is(http, name, stored + 16))
        assert await metric(http, "pando_worker_evicted_tokens_total") == 0


async def test_the_log_accounts_for_all_that_was_done(overlapped: WorkerProcess) -> None:
    assert len(await generate(overlapped, range(300, 311), n=2, max_new_tokens=100)) == 2

    async def all_told() -> bool:
        told = [int(line[2]) for line in map(LOAD.search, overlapped.log.splitlines()) if line]
        async with aiohttp.ClientSession(overlapped.url) as http:
            return sum(told) == await metric(http, "pando_worker_prompt_tokens_total") > 0

    await until(all_told)
    assert "2 running, 0 waiting" in overlapped.log


async def test_no_line_on_the_load_where_none_is_wanted(sequential: WorkerProcess) -> None:
    await generate(sequential, [5], max_new_tokens=5)
    await asyncio.to_thread(sequential.logged, "POST /generate")
    assert not LOAD.search(sequential.log)


async def test_the_model_runs_through_transformers_where_that_is_asked_for(
    overlapped: WorkerProcess, sequential: WorkerProcess
) -> None:
    assert "runs on pando's own code" in overlapped.log
    assert "runs through transformers" in sequential.log


async def test_the_oldest_prefix_is_evicted_first(sequential: WorkerProcess) -> None:
    """With 12 pages of 8 tokens. An order by use would keep the one that was hit."""
    async with (
        aiohttp.ClientSession(sequential.url) as http,
        http.post("/flush_cache") as answer,
    ):
        assert answer.status == 200
    for first in (1000, 2000, 3000):
        assert await generate(sequential, range(first, first + 25)) == [0]
    assert await generate(sequential, range(1000, 1025)) == [24]
    assert await generate(sequential, range(500, 556)) == [0]
    assert await generate(sequential, range(1000, 1025)) == [0]


@pytest.mark.parametrize("name", ["overlapped", "sequential"])
async def test_a_profile_shows_the_model_in_the_thread_that_runs_it(
    request: pytest.FixtureRequest, traces: Path, name: str
) -> None:
    """With overlap it has its own thread; otherwise it runs in the scheduler's, the main thread."""
    worker: WorkerProcess = request.getfixturevalue(name)
    await generate(worker, [7, 8, 9], max_new_tokens=90)
    await asyncio.to_thread(worker.logged, "profile of 50 steps")
    assert "aten::mm" in (traces / name / "operators.txt").read_text()
    events = json.loads((traces / name / "trace.json").read_text())["traceEvents"]
    calls = [event for event in events if event["name"] == "aten::linear"]
    [(process, thread)] = {(call["pid"], call["tid"]) for call in calls}
    assert (process == thread) == (name == "sequential")
    layers, linear = 4, 4  # at least, in each layer
    assert len(calls) >= 49 * layers * linear


async def _is(http: aiohttp.ClientSession, name: str, value: float) -> bool:
    return await metric(http, name) == value
