"""More loads of LoRA adapters at once than a worker may have adapters."""

import asyncio
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from pando_worker.server.adapters import MAX_ADAPTERS
from tests.worker.server.process.test_adapters import COUNT, PROMPT, generate, load, unload
from tests.worker.server.process.tiny_adapters import TinyAdapter, base_greedy
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]


async def test_a_flood_of_loads_is_bounded_and_requests_go_on(tmp_path: Path) -> None:
    adapters = [TinyAdapter(tmp_path / str(seed), seed, rank=4) for seed in range(3)]
    names = [f"adapter {number}" for number in range(MAX_ADAPTERS + 100)]
    paths = [adapters[number % len(adapters)].path for number in range(len(names))]
    with WorkerProcess.start(stand_in=False, threads=1, max_loras=1) as worker:
        at_once = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(worker.url, connector=at_once) as http:
            loads = asyncio.gather(*map(partial(load, http), names, paths))
            answered = 0
            while not loads.done():
                answer = await generate(http, MODEL_NAME)
                assert answer["output_ids"] == base_greedy(PROMPT, COUNT)
                answered += 1
            results = await loads
            refused = [message for status, message in results if status != 200]
            assert refused == [f"this worker has {MAX_ADAPTERS} adapters; unload one first"] * 100
            assert answered > 1
            loaded = [
                name for name, (status, _) in zip(names, results, strict=True) if status == 200
            ]
            last = names.index(loaded[-1]) % len(adapters)
            answer = await generate(http, loaded[-1])
            assert answer["output_ids"] == adapters[last].greedy(PROMPT, COUNT)
            unloads = await asyncio.gather(*map(partial(unload, http), loaded))
            assert {status for status, _ in unloads} == {200}
            async with http.get("/v1/models") as models:
                assert len((await models.json())["data"]) == 1
