"""How much of an image a model sees: pan and scan, and requests' `detail`."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pando_fleet.images.rule import ImageRule
from pando_fleet.images.size import Size
from pando_worker.server.protocol.chats.chat import ChatMessage
from tests.examples import examples
from tests.worker.vision.checkpoints import IMAGE, Seer
from tests.worker.vision.engines import PAGE_SIZE, Worlds, engines_with
from tests.worker.vision.families import save_gemma3, save_idefics3, save_internvl
from tests.worker.vision.photographs import photograph
from tests.worker.vision.prompts import Asked, chat_prompt, text_with
from tests.worker.vision.ways import WAYS, Way

CAT, COFFEE, SQUARE = "chelsea.png", "coffee.png", "astronaut.png"
SCAN: dict[str, Any] = {
    "do_pan_and_scan": True,
    "pan_and_scan_min_crop_size": 60,
    "pan_and_scan_max_num_crops": 3,
    "pan_and_scan_min_ratio_to_activate": 1.3,
}
COUNT = 6


@pytest.fixture(scope="module")
def scanning(tmp_path_factory: pytest.TempPathFactory) -> Seer:
    """A Gemma 3 whose files turn pan and scan on; transformers wants it as arguments."""
    return Seer(save_gemma3(tmp_path_factory.mktemp("gemma3"), **SCAN), SCAN)


@pytest.mark.parametrize("size", [(450, 150), (150, 450), (300, 200), (120, 100), (1000, 50)])
def test_crops_are_those_of_transformers(scanning: Seer, size: tuple[int, int]) -> None:
    """Wide, high and nearly square ones, and one too narrow for crops."""
    image = photograph(CAT).resize(size)
    views = scanning.ours.process(image)
    expected = scanning.inputs(IMAGE, [image])
    crops = {(450, 150): 3, (150, 450): 3, (300, 200): 2}.get(size, 0)
    assert len(views) == 1 + crops
    pixels = np.concatenate([view.arrays["pixel_values"] for view in views])
    np.testing.assert_array_equal(pixels, np.asarray(expected["pixel_values"]))
    assert len({view.digest for view in views}) == len(views)


async def test_a_prompt_has_the_text_around_crops(scanning: Seer) -> None:
    names = (CAT, SQUARE, COFFEE)
    parts: list[Any] = [{"type": "text", "text": "two\n\n"}]
    for name in names:
        parts.append({"type": "image_url", "image_url": {"url": name}})
        parts.append({"type": "text", "text": "\nand "})
    filled = await chat_prompt(scanning, [ChatMessage(role="user", content=parts)])
    text = "USER: two\n\n" + "".join([f"{IMAGE}\n\nand "] * len(names)) + " ASSISTANT:"
    expected = scanning.inputs(text, [photograph(name) for name in names])["input_ids"][0].tolist()
    assert filled.token_ids == expected
    assert filled.image_tokens == 16 * (3 + 1 + 3)
    whole = scanning.processor.tokenizer.decode(filled.token_ids)
    assert whole.count("here are some crops to help you see better") == 2


@pytest.fixture(scope="module")
def worlds(scanning: Seer) -> Iterator[Worlds]:
    with engines_with(scanning) as worlds:
        yield worlds


@pytest.fixture(scope="module")
def asked(scanning: Seer) -> dict[str, Asked]:
    make = partial(Asked, scanning)
    return {
        "text": make("the quick brown fox"),
        "one": make(text_with("the ", " brown fox"), (CAT,)),
        "two": make(text_with("over ", " and ", "?"), (SQUARE, COFFEE)),
    }


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.permutations(["text", "one", "two"]), way=WAYS)
def test_tokens_are_those_of_transformers(
    worlds: Worlds, asked: dict[str, Asked], names: list[str], way: Way
) -> None:
    way.assert_tokens(worlds, asked, names, COUNT)


def test_crops_are_encoded_once_and_cached(worlds: Worlds, asked: dict[str, Asked]) -> None:
    world = worlds()
    for rid in ("first", "again"):
        asked["one"].send(world, rid, COUNT)
        world.run()
    encoded = [len(batch.images.encode) for batch in world.batches if batch.images is not None]
    assert sum(encoded) == 3, "the image and its two crops"
    assert world.cached["again"] == (len(asked["one"].ids) - 1) // PAGE_SIZE * PAGE_SIZE


SIDE = st.integers(1, 1000)


@settings(max_examples=examples(100), deadline=None)
@given(width=SIDE, height=SIDE)
def test_the_rule_knows_how_many_tokens_crops_take(scanning: Seer, width: int, height: int) -> None:
    views = scanning.ours.process(Image.new("RGB", (width, height)))
    tokens = scanning.inputs(IMAGE, [Image.new("RGB", (width, height))])["input_ids"].shape[1]
    rule = sent(scanning.ours.rule)
    assert rule.tokens_of(Size(width, height)) == pytest.approx(tokens, abs=2)
    assert tokens > 18 * len(views)


@pytest.fixture(
    scope="module",
    params=[
        (partial(save_gemma3, **SCAN), {"do_pan_and_scan": False}),
        (save_internvl, {"crop_to_patches": False}),
        (save_idefics3, {"do_image_splitting": False}),
    ],
    ids=["gemma3", "internvl", "idefics3"],
)
def cutting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seer:
    """Of each family that cuts images, with what turns that off."""
    save, whole = request.param
    return Seer(save(tmp_path_factory.mktemp("cutting")), whole)


@pytest.mark.parametrize("name", [CAT, COFFEE])
def test_an_image_with_little_detail_is_seen_as_a_whole(cutting: Seer, name: str) -> None:
    image = photograph(name)
    (low,) = cutting.ours.process(image, small=True)
    expected = cutting.inputs(IMAGE, [image])
    assert low.arrays.keys() >= {"pixel_values"}
    for array, values in low.arrays.items():
        np.testing.assert_array_equal(values, np.asarray(expected[array]))
    ids = expected["input_ids"][0].tolist()
    start, end = ids.index(low.token_ids[0]), len(ids) - ids[::-1].index(low.token_ids[-1])
    assert low.token_ids == ids[start:end]
    rule = sent(cutting.ours.rule)
    assert rule.tokens_of(Size(*image.size), is_low=True) == pytest.approx(len(ids), abs=2)
    usual = cutting.ours.process(image)
    assert sum(len(view.token_ids) for view in usual) > 2 * len(low.token_ids)


def test_tokens_with_little_detail_are_those_of_transformers(cutting: Seer) -> None:
    asked = Asked(cutting, text_with("the ", " fox"), (CAT,), small=True)
    with engines_with(cutting) as worlds:
        world = worlds()
        asked.send(world, "low", COUNT)
        world.run()
    assert world.tokens["low"] == asked.greedy(COUNT)


def sent(rule: ImageRule | None) -> ImageRule:
    """As it arrives in a heartbeat."""
    return msgspec.json.decode(json.dumps(msgspec.to_builtins(rule)), type=ImageRule)
