"""Workers whose model is shared by several processes."""

import asyncio

import aiohttp
import psutil
import pytest

from tests.worker.server.worker_process import WorkerProcess

pytestmark = pytest.mark.e2e

PROMPTS = ["Return the absolute value of", "The function returns", "A list is a sequence of " * 40]


async def answers(url: str) -> list[dict[str, object]]:
    """Greedy and drawn, alone and together, the long prompt in chunks."""
    async with aiohttp.ClientSession(url) as http:

        async def ask(prompt: str, **sampling: object) -> dict[str, object]:
            body = {"text": prompt, "sampling_params": {"max_new_tokens": 24, **sampling}}
            async with http.post("/generate", json=body | {"return_logprob": True}) as answer:
                assert answer.status == 200, await answer.text()
                found: dict[str, object] = (await answer.json())["output_ids"]
                return {"ids": found}

        greedy = [ask(prompt, temperature=0) for prompt in PROMPTS]
        drawn = [ask(prompt, temperature=1, seed=7) for prompt in PROMPTS]
        constrained = [ask(PROMPTS[0], temperature=0, regex="[a-f]{12}")]
        return await asyncio.gather(*greedy, *drawn, *constrained)


async def test_ranks_together_give_the_tokens_of_one() -> None:
    found = []
    for size in (1, 2):
        with WorkerProcess.start(
            stand_in=False, tensor_parallel_size=size, chunked_prefill_size=64, threads=size
        ) as worker:
            found.append(await answers(worker.url))
    assert found[0] == found[1]


async def test_a_rank_that_dies_ends_the_worker_and_says_so() -> None:
    with WorkerProcess.start(stand_in=False, tensor_parallel_size=2, threads=2) as worker:
        children = worker.children()
        [rank] = [child for child in children if child.parent() in children]
        async with aiohttp.ClientSession(worker.url) as http:
            endless = {
                "text": "x",
                "stream": True,
                "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True},
            }
            async with http.post("/generate", json=endless) as running:
                await running.content.readline()
                rank.kill()
                rest = await running.text()
            assert "engine_gone" in rest
        assert await worker.exit_code() == 1
        assert "tensor-parallel rank 1 ended (exit code -9)" in worker.log
    assert not psutil.wait_procs(children, timeout=30)[1]
