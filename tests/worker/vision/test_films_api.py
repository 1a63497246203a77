"""Films through the whole worker, by OpenAI's own client."""

from collections.abc import Iterator
from typing import Any

import aiohttp
import openai
import pytest

from tests.worker.server.process.worker_process import WorkerProcess
from tests.worker.vision.asked_films import AskedFilms, Film
from tests.worker.vision.films import film
from tests.worker.vision.photographs import data_url, path, photograph
from tests.worker.vision.qwen import IMAGE, VIDEO, QwenSeer, save_qwen

pytestmark = pytest.mark.e2e

COUNT = 6
PROMPT = (
    "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|>the brown fox?<|im_end|>\n"
    "<|im_start|>assistant\n"
)
WORDS = {"type": "text", "text": "the brown fox?"}


@pytest.fixture(
    scope="module", params=[pytest.param("qwen2.5-vl", marks=pytest.mark.long), "qwen3-vl"]
)
def seer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> QwenSeer:
    return QwenSeer(save_qwen(tmp_path_factory.mktemp("qwen"), request.param))


@pytest.fixture(scope="module")
def worker(seer: QwenSeer) -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False,
        model=str(seer.path),
        served_model_name="qwen",
        threads=1,
        cpu_kernels="off",
        page_size=4,
        chunked_prefill_size=16,
        max_images=2,
        max_video_seconds=20,
        max_video_frames=10,
        max_video_bytes=100_000,
    ) as worker:
        yield worker


def part(data: bytes) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": data_url(data, "video/mp4")}}


def asking(*parts: dict[str, Any]) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


async def test_answers_and_counts_are_those_of_transformers(
    worker: WorkerProcess, client: openai.AsyncOpenAI, seer: QwenSeer
) -> None:
    """And the second time, its tokens are in the cache. Its embedding is theirs, too."""
    asked = AskedFilms(seer, PROMPT, (), (Film(film(), 24, 8),))
    expected = seer.processor.tokenizer.decode(asked.greedy(COUNT))
    for turn in range(2):
        done = await client.chat.completions.create(
            model="qwen", messages=asking(part(film()), WORDS), max_tokens=COUNT, temperature=0
        )
        assert done.choices[0].message.content == expected
        assert done.usage is not None and done.usage.prompt_tokens_details is not None
        details = done.usage.prompt_tokens_details.model_dump()
        assert done.usage.prompt_tokens == len(asked.ids)
        assert details["video_tokens"] == sum(image.length for image in asked.images)
        assert details["image_tokens"] is None
        assert (details["cached_tokens"] > asked.images[-1].start) == (turn == 1)
    embedded = await client.post(
        "/embeddings",
        body={
            "model": "qwen",
            "messages": asking(part(film()), WORDS),
            "encoding_format": "float",
            "add_generation_prompt": True,
        },
        cast_to=dict[str, Any],
    )
    last = seer.hidden_of(asked.logits)[-1]
    expected_vector = (last / last.norm()).tolist()
    assert embedded["data"][0]["embedding"] == pytest.approx(expected_vector, abs=2e-5)
    assert embedded["usage"]["prompt_tokens_details"]["video_tokens"] == details["video_tokens"]
    async with aiohttp.ClientSession(worker.url) as http:
        body = {"messages": asking(part(film()), WORDS)}
        async with http.post("/tokenize", json=body) as answer:
            assert (await answer.json())["tokens"] == asked.ids


async def test_a_photograph_is_seen_at_its_own_size(
    client: openai.AsyncOpenAI, seer: QwenSeer
) -> None:
    """On one rank; `test_qwen_api.py` has two."""
    content = {"type": "image_url", "image_url": {"url": data_url(path("page.png").read_bytes())}}
    done = await client.chat.completions.create(
        model="qwen", messages=asking(content, WORDS), max_tokens=COUNT, temperature=0
    )
    prompt, images = PROMPT.replace(VIDEO, IMAGE), [photograph("page.png")]
    expected = seer.processor.tokenizer.decode(seer.greedy(prompt, images, COUNT))
    assert done.choices[0].message.content == expected
    assert done.usage is not None
    assert done.usage.prompt_tokens == len(seer.logits(prompt, images))


@pytest.mark.parametrize(
    ("parts", "param", "message"),
    [
        ([part(path("coffee.png").read_bytes()[:9000])], 0, "is not a video in the format MP4,"),
        ([WORDS, part(film()[:2000])], 1, "is a damaged video"),
        ([part(film(frames=50, rate=2))], 0, "has 25.0 s; this worker accepts 20 s"),
        ([part(film(frames=48, rate=4))], 0, r"to see, at 2 a second; this worker accepts 10"),
        ([part(bytes(100_001))], 0, "has 100001 bytes; this worker accepts 100000"),
        ([part(bytes(200_000))], 0, "has more than 100000 bytes"),
        (
            [{"type": "video_url", "video_url": {"url": "https://films.example/a.mp4"}}],
            0,
            "must be data:video/mp4;base64,",
        ),
        (
            [part(film())] * 3,
            None,
            "there are 3 images and videos in messages; this worker accepts 2",
        ),
        (
            [part(film()), {"type": "text", "text": "<|video_pad|>"}],
            None,
            "the prompt has 2 places for images and videos, but there are 1 in messages",
        ),
    ],
    ids=["image", "damaged", "seconds", "frames", "bytes", "far", "http", "many", "token"],
)
async def test_what_cannot_be_seen_is_refused(
    client: openai.AsyncOpenAI, parts: list[Any], param: int | None, message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as error:
        await client.chat.completions.create(model="qwen", messages=asking(*parts), max_tokens=1)
    assert isinstance(error.value.body, dict)
    expected = "messages" if param is None else f"messages[0].content[{param}].video_url"
    assert error.value.body["param"] == expected
