"""Images at their own size through the whole worker, on two ranks; `test_ranks.py` has every
family, and `test_films_api.py` a photograph on one."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.vision.photographs import data_url, path, photograph
from tests.worker.vision.qwen import QwenSeer, save_qwen

pytestmark = [pytest.mark.e2e, pytest.mark.long]

COUNT = 6
BEFORE = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>"
AFTER = "the brown fox?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> QwenSeer:
    return QwenSeer(save_qwen(tmp_path_factory.mktemp("qwen"), "qwen3-vl-moe"))


@pytest.fixture(scope="module")
def worker(seer: QwenSeer) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False,
        model=str(seer.path),
        served_model_name="qwen",
        tensor_parallel_size=2,
        threads=2,
        page_size=4,
        chunked_prefill_size=8,
    ) as worker:
        yield worker


def asking(*names: str) -> list[Any]:
    pictures = [
        {"type": "image_url", "image_url": {"url": data_url(path(name).read_bytes())}}
        for name in names
    ]
    return [{"role": "user", "content": [*pictures, {"type": "text", "text": "the brown fox?"}]}]


async def test_choices_and_usage_are_those_of_transformers(
    client: openai.AsyncOpenAI, seer: QwenSeer
) -> None:
    done = await client.chat.completions.create(
        model="qwen", messages=asking("astronaut.png"), max_tokens=COUNT, temperature=0, n=2
    )
    prompt, images = BEFORE + AFTER, [photograph("astronaut.png")]
    expected = seer.processor.tokenizer.decode(seer.greedy(prompt, images, COUNT))
    assert [choice.message.content for choice in done.choices] == [expected] * 2
    assert done.usage is not None
    assert done.usage.prompt_tokens == len(seer.logits(prompt, images))
    details = done.usage.prompt_tokens_details
    assert details is not None
    assert details.model_dump()["image_tokens"] == 25


async def test_the_second_turn_finds_the_picture_in_the_cache(
    client: openai.AsyncOpenAI, seer: QwenSeer
) -> None:
    first = asking("chelsea.png")
    options: Any = {"model": "qwen", "max_tokens": COUNT, "temperature": 0}
    done = await client.chat.completions.create(messages=first, **options)
    answer = done.choices[0].message.content
    second = [
        *first,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "and the dog?"},
    ]
    done = await client.chat.completions.create(messages=second, **options)
    prompt = (
        f"{BEFORE}{AFTER}{answer}<|im_end|>\n"
        "<|im_start|>user\nand the dog?<|im_end|>\n<|im_start|>assistant\n"
    )
    expected = seer.greedy(prompt, [photograph("chelsea.png")], COUNT)
    assert done.choices[0].message.content == seer.processor.tokenizer.decode(expected)
    assert done.usage is not None
    details = done.usage.prompt_tokens_details
    assert details is not None
    assert details.cached_tokens is not None
    assert details.cached_tokens > 24
