"""Traces with images: tokens by the model's rule, shared prefixes by the images' hashes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pando_fleet.images.rule import ImageRule
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_sim.request import Request
from pando_sim.traces import Reading, TraceError, open_trace
from pando_sim.traces.tokenizer import TextTokenizer
from tests.sim.traces.files import equal_start, json_lines, mooncake
from tests.worker.server.process.worker_process import MODEL
from tests.worker.vision.photographs import data_url, path

GRID = ImageRule(kind="grid", cell=28, min_pixels=3136, max_pixels=12_845_056)
CAT, COFFEE = [451, 300, "cat"], [600, 400, "coffee"]
CAT_TOKENS, COFFEE_TOKENS = 176, 294
SYSTEM = {"role": "system", "content": "You know all about aspens. " * 40}


def read(trace: Path, **reading: Any) -> list[Request]:
    return list(open_trace(trace, Reading(image_rule=GRID) if not reading else Reading(**reading)))


def text(prompt: str, *images: list[Any]) -> dict[str, Any]:
    return {"timestamp": 0, "prompt": prompt, "output_tokens": 1, "images": list(images)}


def chat(*turns: str, images: list[list[Any]]) -> dict[str, Any]:
    """The first turn has the images, in front of its text."""
    first, *rest = turns
    content = [{"type": "image"} for _ in images] + [{"type": "text", "text": first}]
    roles = ("assistant", "user")
    messages = [SYSTEM, {"role": "user", "content": content}]
    messages += [{"role": roles[i % 2], "content": words} for i, words in enumerate(rest)]
    return {"timestamp": 0, "messages": messages, "output_tokens": 1, "images": images}


def shared_chunks(one: Request, other: Request) -> int:
    pairs = zip(one.prompt.keys(), other.prompt.keys(), strict=False)
    equal = 0
    for mine, theirs in pairs:
        if mine != theirs:
            break
        equal += 1
    return equal // KEY_BYTES


@pytest.mark.parametrize("tokenizer", [None, MODEL / "tokenizer.json"])
def test_an_image_has_the_tokens_of_the_rule(tmp_path: Path, tokenizer: Path | None) -> None:
    rows = [text("What is this? " * 9), text("What is this? " * 9, CAT, COFFEE)]
    given = {} if tokenizer is None else {"tokenize": TextTokenizer(tokenizer)}
    plain, seeing = read(json_lines(tmp_path / "t", rows), image_rule=GRID, **given)
    more = seeing.prompt.num_tokens - plain.prompt.num_tokens
    assert more == CAT_TOKENS + COFFEE_TOKENS
    assert len(seeing.prompt.tokens()) == seeing.prompt.num_tokens
    assert seeing.prompt.tokens().min() >= 0


def test_equal_images_share_their_tokens_and_different_ones_share_none(tmp_path: Path) -> None:
    other = [451, 300, "dog"]
    rows = [text("Why?", CAT), text("How?", CAT), text("Why?", other), text("Why?", CAT, COFFEE)]
    cat, again, dog, both = read(json_lines(tmp_path / "trace", rows))
    assert equal_start(cat.prompt.tokens(), again.prompt.tokens()) == CAT_TOKENS
    assert equal_start(cat.prompt.tokens(), dog.prompt.tokens()) == 0
    assert equal_start(cat.prompt.tokens(), both.prompt.tokens()) == CAT_TOKENS
    whole = CAT_TOKENS * 4 // CHUNK_BYTES
    assert shared_chunks(cat, again) == shared_chunks(cat, both) == whole
    assert shared_chunks(cat, dog) == 0


def test_images_stand_where_the_messages_have_them(tmp_path: Path) -> None:
    rows = [
        chat("What is this?", images=[CAT]),
        chat("What is this?", "A cat.", "Sure?", images=[CAT]),
        chat("What is this?", images=[COFFEE]),
    ]
    first, second, other = read(json_lines(tmp_path / "trace", rows))
    words = len(SYSTEM["content"]) // 4
    assert equal_start(first.prompt.tokens(), second.prompt.tokens()) > words + CAT_TOKENS
    assert words <= equal_start(first.prompt.tokens(), other.prompt.tokens()) < words + 10
    assert shared_chunks(first, second) * CHUNK_BYTES > 4 * (words + CAT_TOKENS) - CHUNK_BYTES


def test_a_body_with_pictures_has_their_sizes_from_the_files(tmp_path: Path) -> None:
    url = data_url(path("chelsea.png").read_bytes())
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Why?"}]
    row = {"timestamp": 0, "output_tokens": 1, "messages": [{"role": "user", "content": parts}]}
    trace = json_lines(tmp_path / "trace", [row])
    (seeing,) = read(trace)
    (blind,) = read(trace, image_rule=None)
    assert CAT_TOKENS <= seeing.prompt.num_tokens < CAT_TOKENS + 10
    assert blind.prompt.num_tokens < 20


def test_images_stand_in_front_of_mooncakes_blocks(tmp_path: Path) -> None:
    rows = [
        mooncake(0, 1100, [7, 8, 9], 5),
        mooncake(1, 1100, [7, 8, 9], 5) | {"images": [CAT]},
        mooncake(2, 1024, [7, 8], 5) | {"images": [CAT]},
        mooncake(3, 1024, [7, 8], 5) | {"images": [COFFEE]},
    ]
    plain, cat, shorter, coffee = read(json_lines(tmp_path / "trace", rows))
    assert cat.prompt.num_tokens == plain.prompt.num_tokens + CAT_TOKENS
    assert equal_start(cat.prompt.tokens(), shorter.prompt.tokens()) == 1024 + CAT_TOKENS
    assert equal_start(cat.prompt.tokens(), coffee.prompt.tokens()) == 0
    np.testing.assert_array_equal(cat.prompt.tokens()[CAT_TOKENS:], plain.prompt.tokens())


@pytest.mark.parametrize(
    ("row", "reading", "message"),
    [
        (text("Why?", CAT), {"image_rule": None}, "no --image-rule"),
        (mooncake(0, 512, [7], 5) | {"images": [CAT]}, {"image_rule": None}, "no --image-rule"),
        (chat("Why?", images=[CAT]) | {"images": [CAT, CAT]}, {}, "1 parts .* lists 2"),
        (text("Why?", [0, 300, "cat"]), {}, "images"),
        (text("Why?", [451, 300]), {}, "images"),
    ],
)
def test_what_is_wrong_with_images_is_said_with_its_line(
    tmp_path: Path, row: dict[str, Any], reading: dict[str, Any], message: str
) -> None:
    with pytest.raises(TraceError, match=rf"trace:1: .*{message}"):
        read(json_lines(tmp_path / "trace", [row]), **reading)


def test_a_trace_with_images_goes_to_another_process(tmp_path: Path) -> None:
    trace = open_trace(json_lines(tmp_path / "t", [text("Why?", CAT)]), Reading(image_rule=GRID))
    (request,) = pickle.loads(pickle.dumps(trace))
    assert request.prompt.num_tokens == CAT_TOKENS + 1


def test_repeated_images_are_others_in_each_pass(tmp_path: Path) -> None:
    (request,) = read(json_lines(tmp_path / "trace", [text("Why? " * 99, CAT)]))
    again: Any = request.prompt.renewed(0, 1)  # type: ignore[attr-defined]
    assert again.num_tokens == request.prompt.num_tokens
    assert equal_start(request.prompt.tokens(), again.tokens()) == 0
