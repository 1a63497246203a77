"""The model that ships to be asked about pictures: what it was trained for, by OpenAI's client."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from examples.vision.pictures import Group, Scene, draw, scene
from examples.vision.train import HELD_OUT_SEED
from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.vision.photographs import data_url, encoded

pytestmark = pytest.mark.e2e

SHAPES = Path(__file__).parents[3] / "examples/vision/shapes"
IMAGE_TOKENS = 36


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False, model=str(SHAPES), served_model_name="shapes", threads=1, cpu_kernels="off"
    ) as worker:
        yield worker


def asking(shown: Scene, rng: random.Random) -> dict[str, Any]:
    picture = data_url(encoded(draw(shown, rng), "PNG"))
    return {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": picture}},
            {"type": "text", "text": "What is in the picture?"},
        ],
    }


async def test_nine_captions_in_ten_are_right(client: openai.AsyncOpenAI) -> None:
    rng = random.Random(HELD_OUT_SEED)
    shown = [scene(rng) for _ in range(20)]
    asked: list[Any] = [[asking(each, rng)] for each in shown]
    answers = await asyncio.gather(
        *(client.chat.completions.create(model="shapes", messages=each) for each in asked)
    )
    right = sum(
        answer.choices[0].message.content == each.caption
        for answer, each in zip(answers, shown, strict=True)
    )
    assert right >= 18


async def test_the_second_question_finds_the_picture_in_the_cache(
    client: openai.AsyncOpenAI,
) -> None:
    shown = Scene((Group(1, "red", "circle"), Group(2, "blue", "square")))
    messages: list[Any] = [asking(shown, random.Random(2))]
    first = await client.chat.completions.create(model="shapes", messages=messages)
    assert first.choices[0].message.content == "A red circle and two blue squares."
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "How many squares are there?"},
    ]
    second = await client.chat.completions.create(model="shapes", messages=messages)
    assert second.choices[0].message.content == "Two."
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= IMAGE_TOKENS
