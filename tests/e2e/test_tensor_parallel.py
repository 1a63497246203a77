"""Workers with a model split over several processes."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from gguf import GGMLQuantizationType as Kind
from transformers import Gemma3TextConfig

from pando_worker.messages import SamplingParams, TokenLogprob
from tests.waiting import PATIENCE_S
from tests.worker.engine.served import lend_tokenizer
from tests.worker.engine.truth import check_logprobs, check_output
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.gguf_files import write_gguf
from tests.worker.server.process.worker_process import WorkerProcess, metric, until

pytestmark = pytest.mark.e2e

NEW_TOKENS = 24
TOP = 2
NEAR = 0.02  # of log-probabilities, where ranks multiply integers
SAMPLING = [
    SamplingParams(max_new_tokens=NEW_TOKENS, temperature=0),
    SamplingParams(max_new_tokens=NEW_TOKENS, temperature=0, frequency_penalty=1.0),
    SamplingParams(max_new_tokens=NEW_TOKENS, seed=7),
    SamplingParams(max_new_tokens=NEW_TOKENS, seed=7, top_k=50, top_p=0.9),
    SamplingParams(max_new_tokens=NEW_TOKENS, temperature=0),
]
FORCED = "(yes|no), because of (this|that), and for no other reason"


def windowed(directory: Path) -> Reference:
    """A model with a window in every other layer and the shipped model's tokenizer."""
    directory.mkdir()
    vocab_size = lend_tokenizer(directory)
    return Reference(
        directory,
        config_type=Gemma3TextConfig,
        vocab_size=vocab_size,
        head_dim=16,
        sliding_window=9,
        layer_types=["sliding_attention", "full_attention"],
    )


class Client:
    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._asked = 0

    async def ask(self, tokens: list[int], sampling: dict[str, Any], start: int = -1) -> Any:
        """The native API's answer, with log-probabilities of the prompt after `start`."""
        self._asked += 1
        body = {
            "input_ids": tokens,
            "sampling_params": sampling | {"ignore_eos": True},
            "return_logprob": start >= 0,
            "logprob_start_len": start,
            "top_logprobs_num": TOP if start >= 0 else 0,
        }
        async with self._http.post("/generate", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def count(self, name: str) -> float:
        """A counter, read after it includes all requests."""

        async def all_seen() -> bool:
            finished = await metric(self._http, "pando_worker_finished_requests_total")
            return finished == self._asked

        await until(all_seen)
        return await metric(self._http, f"pando_worker_{name}_total")


def fields(sampling: SamplingParams) -> dict[str, Any]:
    names = ("max_new_tokens", "temperature", "seed", "top_k", "top_p", "frequency_penalty")
    return {name: getattr(sampling, name) for name in names}


def scores(own: list[Any], top: list[Any]) -> list[TokenLogprob]:
    return [
        TokenLogprob(
            logprob=logprob,
            top_ids=[id for _, id, _ in likely],
            top_logprobs=[value for value, _, _ in likely],
        )
        for (logprob, _, _), likely in zip(own, top, strict=True)
    ]


def check(
    reference: Reference, tokens: list[int], start: int, asked: SamplingParams, answer: Any
) -> None:
    produced, meta = answer["output_ids"], answer["meta_info"]
    assert len(produced) == NEW_TOKENS
    check_output(reference, tokens, produced, asked)
    of_prompt = scores(meta["input_token_logprobs"][1:], meta["input_top_logprobs"][1:])
    check_logprobs(reference, tokens, start + 1, of_prompt, TOP)
    of_output = scores(meta["output_token_logprobs"], meta["output_top_logprobs"])
    check_logprobs(reference, tokens + produced, len(tokens), of_output, TOP)


@pytest.mark.parametrize(
    ("size", "crowd", "pool"), [(2, 5, 160), pytest.param(4, 3, 160, marks=pytest.mark.long)]
)
async def test_ranks_together_answer_as_transformers(
    tmp_path: Path, size: int, crowd: int, pool: int
) -> None:
    """Two turns of conversations in a pool for two or three requests: they retract each other,
    release pages behind windows, hit what the previous turn left, and get it back from host memory.
    With 4 there are more ranks than KV heads."""
    reference = windowed(tmp_path / "model")
    with WorkerProcess.start(
        stand_in=False,
        model=str(reference.path),
        tensor_parallel_size=size,
        threads=size,
        page_size=4,
        chunked_prefill_size=16,
        max_total_tokens=pool,
        window_ratio=0.75,
        new_token_ratio=0.01,
        watermark=0,
        host_memory_gib=0.001,
    ) as worker:
        assert re.search("1 layers with windows up to 9 hold 1[0-9]+ tokens", worker.log)
        # The worker may close idle connections while answers are checked.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(worker.url, connector=connector) as http:
            client = Client(http)
            turns = [prompt(40 + seed, seed=seed) for seed in range(crowd)]
            for start in (0, 30):
                answers = await asyncio.gather(
                    *(
                        client.ask(tokens, fields(sampling), start)
                        for tokens, sampling in zip(turns, SAMPLING, strict=False)
                    )
                )
                for tokens, sampling, answer in zip(turns, SAMPLING, answers, strict=False):
                    check(reference, tokens, start, sampling, answer)
                turns = [
                    [*tokens, *answer["output_ids"]]
                    for tokens, answer in zip(turns, answers, strict=True)
                ]
            for counter in ("retracted_requests", "host_loaded_tokens", "cached_prompt_tokens"):
                assert await client.count(counter) > 0, counter
            steps = await client.count("scheduler_steps")
            answer = await client.ask(prompt(9), {"max_new_tokens": 60, "regex": FORCED})
            assert re.fullmatch(FORCED, answer["text"])
            # Forced text needs no steps.
            assert await client.count("scheduler_steps") - steps < len(answer["output_ids"])


@pytest.mark.long
@pytest.mark.parametrize("kept", ["int4", "as in a GGUF file"])
async def test_two_ranks_with_integers_answer_as_one(tmp_path: Path, kept: str) -> None:
    """Sums over ranks round differently, and then an input may become the next integer: by so much
    log-probabilities may differ, and tokens where the best two are that close."""
    folder = tmp_path / "model"
    folder.mkdir()
    vocab_size = lend_tokenizer(folder)
    path = Reference(
        folder, vocab_size=vocab_size, hidden_size=64, intermediate_size=128, std=0.1
    ).path
    quantization = "int4"
    if kept != "int4":
        path, quantization = write_gguf(path, tmp_path / "model.gguf", kind=Kind.Q8_0), "auto"
    answers = []
    for size in (1, 2):
        with WorkerProcess.start(
            stand_in=False,
            model=str(path),
            quantization=quantization,
            tensor_parallel_size=size,
            threads=2,
        ) as worker:
            assert re.search(r"loaded in .* as torch\.float32, weights ", worker.log)
            async with aiohttp.ClientSession(worker.url) as http:
                client = Client(http)
                greedy = {"max_new_tokens": NEW_TOKENS, "temperature": 0}
                asked = [client.ask(prompt(40, seed=seed), greedy, 0) for seed in range(4)]
                answers.append(await asyncio.gather(*asked))
    for one, two in zip(*answers, strict=True):
        assert_nearly_the_same(one, two)


def assert_nearly_the_same(one: Any, two: Any) -> None:
    """Of the native API's answers, up to a token for which both have a near tie."""
    mine, other = one["meta_info"], two["meta_info"]
    for a, b in zip(mine["input_token_logprobs"], other["input_token_logprobs"], strict=True):
        assert a[0] is b[0] is None or abs(a[0] - b[0]) < NEAR
    compared = 0
    for step, (a, b) in enumerate(zip(one["output_ids"], two["output_ids"], strict=True)):
        best, second = mine["output_top_logprobs"][step]
        if a != b:
            assert best[0] - second[0] < NEAR
            break
        difference = (
            mine["output_token_logprobs"][step][0] - other["output_token_logprobs"][step][0]
        )
        assert abs(difference) < NEAR
        compared += 1
    assert compared > 0


async def test_two_ranks_take_the_memory_of_one_and_the_end_of_one_ends_the_worker() -> None:
    """2 GiB by default, minus the weights and a reserve."""
    token_bytes = 4 * 2 * 2 * 64 * 4  # pando-tiny: layers, keys and values, heads, float32
    with WorkerProcess.start(stand_in=False, tensor_parallel_size=2, threads=2) as worker:
        children = worker.children()
        [rank] = worker.other_ranks()
        async with aiohttp.ClientSession(worker.url) as http:
            async with http.get("/server_info") as answer:
                tokens = (await answer.json())["engine"]["capacity_tokens"]
            assert 2**30 < tokens * token_bytes < 2 * 2**30
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
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
