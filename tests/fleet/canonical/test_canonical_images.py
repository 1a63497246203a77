"""Images in canonical bytes: one digest for equal images, in every API and spelling."""

import base64
from typing import Any

import pytest

from pando_fleet.canonical import chat_bytes, messages_bytes, responses_bytes
from pando_fleet.canonical.images import add_image
from pando_fleet.images.in_prefix import MOST_IMAGES, PrefixImage
from pando_fleet.images.size import Size
from tests.worker.vision.photographs import data_url, encoded, path, photograph

CAT = path("chelsea.png").read_bytes()
COFFEE = path("coffee.png").read_bytes()
URL = data_url(CAT)

Part = dict[str, Any]


def image_url(url: str, **detail: str) -> Part:
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def anthropic(data: bytes, kind: str = "image/png") -> Part:
    text = base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": text}}


def chat(part: Part, images: list[PrefixImage] | None = None) -> bytes:
    return chat_bytes([{"role": "user", "content": [part]}], images=images)


@pytest.mark.parametrize(
    "part",
    [
        image_url("DATA:Image/PNG;Base64," + URL.partition(",")[2]),
        image_url(data_url(CAT, "image/jpeg")),
        image_url(URL.rstrip("=")),
        image_url(URL[:1000] + "\r\n" + URL[1000:]),
        image_url(URL.replace("/", "%2F").replace("+", "%2B")),
        image_url(URL, detail="auto"),
        {"type": "image_url", "image_url": URL},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        anthropic(CAT),
        anthropic(CAT, "image/jpeg"),
        anthropic(CAT) | {"cache_control": {"type": "ephemeral"}},
    ],
)
def test_equal_images_have_equal_bytes_in_every_api_and_spelling(part: Part) -> None:
    expected = chat(image_url(URL))
    assert chat(part) == expected
    assert messages_bytes([{"role": "user", "content": [part]}]) == expected
    assert responses_bytes([{"role": "user", "content": [part]}]) == expected


class Measured(bytes):
    """Counts how often anyone asks for a length."""

    asked = 0

    def __len__(self) -> int:
        Measured.asked += 1
        return super().__len__()


def test_many_images_behind_many_parts_cost_no_more_than_both() -> None:
    """A body of a million parts would stop a router for seconds."""
    out: list[bytes] = [Measured(b"text")] * 1000
    images: list[PrefixImage] = []
    for _ in range(MOST_IMAGES):
        add_image(out, images, image_url("https://example.com/cat.png"))
    assert Measured.asked == 1000
    assert images[-1].end == len(b"".join(out))


def test_images_that_differ_have_other_bytes() -> None:
    link = "https://example.com/cat.png"
    parts = [
        image_url(URL),
        image_url(data_url(COFFEE)),
        image_url(data_url(CAT[:-1])),
        image_url(URL, detail="low"),
        image_url(link),
        image_url(link + "?2"),
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_image", "file_id": "file-2"},
        {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
        image_url(URL) | {"uuid": "1"},
    ]
    found = {chat(part) for part in parts}
    assert len(found) == len(parts)
    assert all(len(data) < 50 for data in found)


def test_a_url_is_the_same_image_in_every_api() -> None:
    link = "https://example.com/cat.png"
    source = {"type": "image", "source": {"type": "url", "url": link}}
    assert chat(image_url(link)) == chat(source)
    assert chat(image_url(link)) == chat({"type": "input_image", "image_url": link})


def test_sizes_and_places_of_images_are_found() -> None:
    images: list[PrefixImage] = []
    jpeg = data_url(encoded(photograph("coffee.png"), "JPEG"), "image/jpeg")
    content = [
        {"type": "text", "text": "Which of these?"},
        image_url(URL),
        image_url(jpeg),
        image_url("https://example.com/cat.png"),
        image_url("data:image/png;base64,bm8gaW1hZ2U="),
    ]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "The cat."}]
    data = chat_bytes(messages, b"", images)
    sizes = [image.size for image in images]
    assert sizes == [Size(451, 300), Size(600, 400), None, None]
    for count, image in enumerate(images, 2):
        cut = [{"role": "user", "content": content[:count]}]
        assert data[: image.end] == chat_bytes(cut)


def test_detail_low_is_noticed() -> None:
    images: list[PrefixImage] = []
    chat(image_url(URL, detail="low"), images)
    chat({"type": "input_image", "image_url": URL, "detail": "low"}, images)
    chat(image_url(URL, detail="high"), images)
    assert [image.is_low for image in images] == [True, True, False]


def test_images_in_results_of_tools_and_screenshots_count() -> None:
    images: list[PrefixImage] = []
    result = {"type": "tool_result", "tool_use_id": "t", "content": [anthropic(CAT)]}
    messages_bytes([{"role": "user", "content": [result]}], images=images)
    screenshot = {"type": "computer_screenshot", "image_url": URL}
    output = {"type": "computer_call_output", "call_id": "c", "output": screenshot}
    responses_bytes([output], images=images)
    assert [image.size for image in images] == [Size(451, 300)] * 2


def test_only_the_first_images_have_a_size() -> None:
    images: list[PrefixImage] = []
    content = [image_url(URL)] * (MOST_IMAGES + 1)
    longer = chat_bytes([{"role": "user", "content": content}], b"", images)
    assert len(images) == MOST_IMAGES
    assert longer > chat_bytes([{"role": "user", "content": content[1:]}])
