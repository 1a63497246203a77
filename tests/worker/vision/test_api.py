"""Images through the whole worker, by OpenAI's own client: answers are those of transformers."""

import base64
import io
import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from tests.waiting import PATIENCE_S
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.photographs import data_url, encoded, path, photograph

pytestmark = pytest.mark.e2e

COUNT = 6


@pytest.fixture(scope="module")
def asked_at_once(llava: Seer) -> Iterator[tuple[WorkerProcess, int]]:
    """A worker, and the status of a request about a picture as soon as it said that it is ready."""
    with WorkerProcess.start(
        stand_in=False,
        model=str(llava.path),
        served_model_name="llava",
        threads=1,
        cpu_kernels="off",
        page_size=4,
        max_images=3,
        max_image_pixels=400_000,
        image_hosts="pictures.example",
    ) as worker:
        body = {"model": "llava", "messages": asking(picture("chelsea.png")), "max_tokens": 1}
        asked = urllib.request.Request(
            f"{worker.url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            status = answer.status
        yield worker, status


@pytest.fixture(scope="module")
def worker(asked_at_once: tuple[WorkerProcess, int]) -> WorkerProcess:
    return asked_at_once[0]


def test_a_worker_that_says_that_it_is_ready_sees(asked_at_once: tuple[WorkerProcess, int]) -> None:
    """Its image processor takes longer to load than a small model."""
    assert asked_at_once[1] == 200


def picture(name: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(path(name).read_bytes())}}


def asking(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


WORDS = {"type": "text", "text": "the brown fox?"}


async def test_an_answer_about_two_pictures_is_that_of_transformers(
    client: openai.AsyncOpenAI, llava: Seer
) -> None:
    messages = asking(
        picture("chelsea.png"), {"type": "text", "text": "over "}, picture("rocket.jpg"), WORDS
    )
    done = await client.chat.completions.create(
        model="llava", messages=messages, max_tokens=COUNT, temperature=0, logprobs=True
    )
    prompt = "USER: <image>\nover <image>\nthe brown fox? ASSISTANT:"
    images = [photograph("chelsea.png"), photograph("rocket.jpg")]
    expected = llava.greedy(prompt, images, COUNT)
    assert done.choices[0].message.content == llava.processor.tokenizer.decode(expected)
    assert done.usage is not None
    assert done.usage.prompt_tokens == len(llava.logits(prompt, images))
    details = done.usage.prompt_tokens_details
    assert details is not None
    assert details.model_dump()["image_tokens"] == 32


async def test_a_conversation_with_a_picture_is_embedded(
    client: openai.AsyncOpenAI, llava: Seer
) -> None:
    """As vLLM's `messages`: by its last token, alone, with the prompt for an answer, or with the
    beginning of one."""
    bare = "USER: <image>\nthe brown fox? "
    last = {"role": "assistant", "content": [{"type": "text", "text": ""}]}
    asked: list[tuple[str, list[Any], dict[str, Any]]] = [
        (bare, [], {}),
        (f"{bare}ASSISTANT:", [], {"add_generation_prompt": True}),
        (f"{bare}ASSISTANT:", [last], {"continue_final_message": True}),
    ]
    for prompt, more, fields in asked:
        messages = [*asking(picture("chelsea.png"), WORDS), *more]
        body = {"model": "llava", "messages": messages, "encoding_format": "float", **fields}
        found = await client.post("/embeddings", body=body, cast_to=dict[str, Any])
        hidden = llava.hidden(prompt, [photograph("chelsea.png")])
        expected = (hidden[-1] / hidden[-1].norm()).tolist()
        assert found["data"][0]["embedding"] == pytest.approx(expected, abs=2e-5)
        assert found["usage"]["prompt_tokens"] == len(hidden)
        assert found["usage"]["prompt_tokens_details"]["image_tokens"] == 16


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "give either 'input' or 'messages'"),
        ({"input": "a", "messages": asking(WORDS)}, "give either 'input' or 'messages'"),
        ({"messages": []}, "at least 1 item"),
        ({"messages": asking(WORDS), "continue_final_message": True}, "has role 'user'"),
        ({"messages": asking(WORDS), "mm_processor_kwargs": {"a": 1}}, "not supported"),
        ({"messages": asking({"type": "image_url", "image_url": {"url": "data:,a"}})}, "image"),
    ],
)
async def test_an_embedding_of_no_conversation_is_refused(
    client: openai.AsyncOpenAI, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        await client.post("/embeddings", body={"model": "llava", **fields}, cast_to=dict[str, Any])


async def test_the_second_turn_finds_the_picture_in_the_cache(
    client: openai.AsyncOpenAI, llava: Seer
) -> None:
    """Sent as another file of the same picture."""
    first = asking(picture("coffee.png"), WORDS)
    options: Any = {"model": "llava", "max_tokens": COUNT, "temperature": 0}
    done = await client.chat.completions.create(messages=first, **options)
    lossless = encoded(photograph("coffee.png"), "WEBP", lossless=True)
    again: Any = {"type": "image_url", "image_url": {"url": data_url(lossless), "detail": "low"}}
    second = [
        *asking(again, WORDS),
        {"role": "assistant", "content": done.choices[0].message.content},
        {"role": "user", "content": "and the dog?"},
    ]
    done = await client.chat.completions.create(messages=second, **options)
    assert done.usage is not None and done.usage.prompt_tokens_details is not None
    before = len(llava.processor.tokenizer("USER: ", add_special_tokens=False)["input_ids"])
    assert (done.usage.prompt_tokens_details.cached_tokens or 0) >= before + 16
    other = await client.chat.completions.create(
        messages=asking(picture("astronaut.png"), WORDS), **options
    )
    assert other.usage is not None and other.usage.prompt_tokens_details is not None
    assert (other.usage.prompt_tokens_details.cached_tokens or 0) <= before


async def test_streams_and_choices_see_the_picture(client: openai.AsyncOpenAI, llava: Seer) -> None:
    stream = await client.chat.completions.create(
        model="llava",
        messages=asking(picture("astronaut.png"), WORDS),
        max_tokens=COUNT,
        temperature=0,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    texts = ["", ""]
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        usage = chunk.usage
    prompt = "USER: <image>\nthe brown fox? ASSISTANT:"
    expected = llava.greedy(prompt, [photograph("astronaut.png")], COUNT)
    assert texts == [llava.processor.tokenizer.decode(expected)] * 2
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.model_dump()["image_tokens"] == 16


async def test_tokenize_counts_a_pictures_tokens(worker: WorkerProcess, llava: Seer) -> None:
    prompt = "USER: <image>\nthe brown fox? ASSISTANT:"
    async with aiohttp.ClientSession(worker.url) as http:
        body = {"messages": asking(picture("chelsea.png"), WORDS)}
        async with http.post("/tokenize", json=body) as answer:
            found = await answer.json()
    assert found["count"] == len(llava.logits(prompt, [photograph("chelsea.png")]))
    assert found["tokens"].count(llava.processor.image_token_id) == 16


async def test_anthropics_messages_see_the_picture(worker: WorkerProcess, llava: Seer) -> None:
    prompt, images = "USER: <image>\nthe brown fox? ASSISTANT:", [photograph("chelsea.png")]
    data = base64.b64encode(path("chelsea.png").read_bytes()).decode()
    source: Any = {"type": "base64", "media_type": "image/png", "data": data}
    image: Any = {"type": "image", "source": source}
    messages: Any = asking(image, WORDS)
    asked: Any = {"model": "llava", "messages": messages}
    options: Any = {**asked, "max_tokens": COUNT, "extra_body": {"temperature": 0}}
    async with anthropic.AsyncAnthropic(base_url=worker.url, api_key="none") as client:
        counted = await client.messages.count_tokens(**asked)
        done = await client.messages.create(**options)
        async with client.messages.stream(**options) as stream:
            streamed = await stream.get_final_text()
    assert counted.input_tokens == len(llava.logits(prompt, images))
    [block] = done.content
    assert block.type == "text"
    assert block.text == streamed
    assert block.text == llava.processor.tokenizer.decode(llava.greedy(prompt, images, COUNT))


async def test_responses_see_the_picture_and_the_next_finds_it_in_the_cache(
    client: openai.AsyncOpenAI, llava: Seer
) -> None:
    url = data_url(path("astronaut.png").read_bytes())
    parts: list[Any] = [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": "the lazy dog?"},
    ]
    options: Any = {"model": "llava", "max_output_tokens": COUNT, "temperature": 0}
    first = await client.responses.create(input=[{"role": "user", "content": parts}], **options)
    prompt = "USER: <image>\nthe lazy dog? ASSISTANT:"
    expected = llava.greedy(prompt, [photograph("astronaut.png")], COUNT)
    assert first.output_text == llava.processor.tokenizer.decode(expected)
    second = await client.responses.create(
        input="and the fox?", previous_response_id=first.id, **options
    )
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= 16


async def test_the_native_api_has_images_for_the_image_tokens_of_its_prompt(
    worker: WorkerProcess, llava: Seer
) -> None:
    """As text, and as token ids."""
    text = "over <image> and <image> lazy"
    names = ("chelsea.png", "rocket.jpg")
    expected = llava.greedy(text, [photograph(name) for name in names], COUNT)
    tokenizer = llava.processor.tokenizer
    async with aiohttp.ClientSession(worker.url) as http:
        for prompt in ({"text": text}, {"input_ids": tokenizer(text)["input_ids"]}):
            body = {
                **prompt,
                "image_data": [data_url(path(name).read_bytes()) for name in names],
                "sampling_params": {"max_new_tokens": COUNT, "temperature": 0},
            }
            async with http.post("/generate", json=body) as answer:
                found = await answer.json()
            assert found["output_ids"] == expected, found


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"text": "a"}, "image_data", "has 0 places for images, but there are 1 in image_data"),
        ({"text": "<image><image>"}, "image_data", "has 2 places for images, but there are 1"),
        ({"text": ["<image>", "a"]}, "image_data", "for one prompt, but text has several"),
        ({"text": "<image>", "image_data": ["data:", 5]}, "image_data[1]", "string"),
        ({"text": "<image>", "image_data": "/etc/passwd"}, "image_data[0]", "must be a data:"),
        ({"text": "<image>", "image_data": ["data:"] * 4}, "image_data", "4 images in image_data"),
    ],
)
async def test_other_images_in_the_native_api_are_refused(
    worker: WorkerProcess, fields: dict[str, Any], param: str, message: str
) -> None:
    body = {"image_data": data_url(path("brick.png").read_bytes()), **fields}
    async with aiohttp.ClientSession(worker.url) as http, http.post("/generate", json=body) as got:
        assert got.status == 400
        error = (await got.json())["error"]
    assert message in error["message"]
    assert error["param"].startswith(param)


def large() -> dict[str, Any]:
    image = photograph("coffee.png").resize((700, 600))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    url = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    ("parts", "param", "message"),
    [
        (
            [WORDS, {"type": "image_url", "image_url": {"url": data_url(b"no picture")}}],
            "messages[0].content[1].image_url",
            "is not an image in the format PNG, JPEG, WEBP or GIF",
        ),
        ([large()], "messages[0].content[0].image_url", "700 x 600 = 420000 pixels; this worker"),
        (
            [{"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}],
            "messages[0].content[0].image_url",
            "is on 'localhost', from which this worker does not fetch",
        ),
        (
            [picture("brick.png")] * 4,
            "messages",
            "there are 4 images in messages; this worker accepts 3",
        ),
        (
            [picture("brick.png"), {"type": "text", "text": "<image>"}],
            "messages",
            "the prompt has 2 places for images, but there are 1 in messages",
        ),
        ([{"type": "image_url"}], "messages[0].content", "'image_url' without image_url.url"),
        (
            [{"type": "image_url", "image_url": {"url": "data:", "detail": "ultra"}}],
            "messages[0].content[0].image_url.detail",
            "'auto', 'low', 'high' or 'original'",
        ),
        (
            [{"type": "video_url", "video_url": {"url": "data:"}}],
            "messages[0].content[0].video_url",
            "is a video, but 'llava' reads text and images only",
        ),
        (
            [{"type": "input_audio", "input_audio": {"data": ""}}],
            "messages[0].content",
            "part of type 'input_audio', not 'text', 'image_url' or 'video_url'",
        ),
    ],
    ids=["no image", "large", "host", "many", "image token", "no URL", "detail", "video", "audio"],
)
async def test_what_cannot_be_seen_is_refused(
    client: openai.AsyncOpenAI, parts: list[Any], param: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(model="llava", messages=asking(*parts), max_tokens=1)
    assert isinstance(error.value.body, dict)
    assert error.value.body["param"] == param
    assert message in error.value.body["message"]


async def test_a_prompt_with_images_is_not_truncated(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="truncate_prompt_tokens would cut images"):
        await client.chat.completions.create(
            model="llava",
            messages=asking(picture("brick.png")),
            extra_body={"truncate_prompt_tokens": 10},
        )


def test_a_processor_that_cannot_be_loaded_ends_the_worker(llava: Seer, tmp_path: Path) -> None:
    broken = shutil.copytree(llava.path, tmp_path / "broken")
    (broken / "processor_config.json").write_text("{}")
    with WorkerProcess.start(ready=False, model=str(broken)) as worker:
        worker.logged("cannot serve this model: its image processor cannot be loaded")
        assert worker.process.wait() == 1


async def test_a_model_that_reads_text_only_says_so() -> None:
    with WorkerProcess.start() as worker:
        async with worker.client() as client:
            with pytest.raises(openai.BadRequestError, match="'pando-tiny' reads text only"):
                await client.chat.completions.create(
                    model=MODEL_NAME, messages=asking(picture("brick.png"), WORDS)
                )
