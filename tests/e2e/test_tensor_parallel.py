"""Workers whose model is shared by several processes."""

import asyncio
import shutil
from pathlib import Path

import aiohttp
import psutil
import pytest
from transformers import Gemma3TextConfig

from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.server.worker_process import MODEL, WorkerProcess

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


def gemma(directory: Path) -> Reference:
    """With a window in every other layer, and the shipped model's tokenizer."""
    reference = Reference(
        directory,
        config_type=Gemma3TextConfig,
        vocab_size=3072,
        head_dim=16,
        sliding_window=9,
        layer_types=["sliding_attention", "full_attention"],
    )
    for file in MODEL.glob("*token*.json"):
        shutil.copy(file, directory)
    return reference


async def test_ranks_release_pages_behind_windows_and_give_the_tokens_of_transformers(
    tmp_path: Path,
) -> None:
    """In a pool for a few requests: the other rank, too, writes where released pages were, and
    takes pages back from its host memory."""
    reference = gemma(tmp_path)
    with WorkerProcess.start(
        stand_in=False,
        model=str(tmp_path),
        tensor_parallel_size=2,
        threads=2,
        page_size=4,
        chunked_prefill_size=16,
        max_total_tokens=160,
        host_memory_gib=0.001,
    ) as worker:
        assert "1 layers with windows up to 9 hold 80 tokens" in worker.log
        async with aiohttp.ClientSession(worker.url) as http:

            async def ask(tokens: list[int]) -> list[int]:
                sampling = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}
                body = {"input_ids": tokens, "sampling_params": sampling}
                async with http.post("/generate", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    found: list[int] = (await answer.json())["output_ids"]
                    return found

            turns = [prompt(40 + seed, seed=seed) for seed in range(5)]
            for _ in range(2):
                outputs = await asyncio.gather(*map(ask, turns))
                assert outputs == [reference.greedy(tokens, 12) for tokens in turns]
                turns = [[*tokens, *out] for tokens, out in zip(turns, outputs, strict=True)]
            async with http.get("/metrics") as metrics:
                loaded = [line for line in (await metrics.text()).splitlines() if "loaded" in line]
    assert float(loaded[-1].split()[-1]) > 0, loaded


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
