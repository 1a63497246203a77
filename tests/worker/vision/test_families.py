"""What each family's processor makes of photographs, and where it stands in a prompt."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from pando_worker.batch import PixelValues
from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.kinds.text_part import WITH_IMAGES
from pando_worker.models.sight import blindness
from pando_worker.models.transformers_backend.tower import VisionTower
from pando_worker.runner.tower_trial import try_tower
from pando_worker.server.protocol.chats.chat import ChatMessage
from pando_worker.vision.errors import ImageError
from pando_worker.vision.rows import RowProcessor
from tests.examples import examples
from tests.worker.vision.checkpoints import IMAGE, Seer
from tests.worker.vision.engines import engines_with
from tests.worker.vision.families import save_gemma3, save_llava_next, save_mistral3, save_pixtral
from tests.worker.vision.photographs import photograph
from tests.worker.vision.prompts import Asked, chat_prompt, text_with

NAMES = ("chelsea.png", "rocket.jpg", "page.png")


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_those_of_transformers(seer: Seer, name: str) -> None:
    (found,) = seer.ours.process(photograph(name))
    expected = seer.inputs(IMAGE, [photograph(name)])
    of_images = expected.keys() - {"input_ids", "attention_mask", "token_type_ids"}
    assert found.arrays.keys() == of_images
    for array in of_images:
        np.testing.assert_array_equal(found.arrays[array], np.asarray(expected[array]))


@pytest.mark.parametrize("names", [NAMES[:1], (NAMES[0], NAMES[0]), NAMES], ids=len)
async def test_a_prompt_has_the_tokens_of_transformers(seer: Seer, names: tuple[str, ...]) -> None:
    """Also where new lines of the template and of the processor meet. The template puts one behind
    each image."""
    parts: list[Any] = [{"type": "text", "text": "two\n\n"}]
    for name in names:
        parts.append({"type": "image_url", "image_url": {"url": name}})
        parts.append({"type": "text", "text": "\nand "})
    messages = [ChatMessage(role="user", content=parts)]
    filled = await chat_prompt(seer, messages)
    text = "USER: two\n\n" + "".join([f"{IMAGE}\n\nand "] * len(names)) + " ASSISTANT:"
    expected = seer.inputs(text, [photograph(name) for name in names])["input_ids"][0].tolist()
    assert filled.token_ids == expected
    places = [at for at, token in enumerate(expected) if token == seer.image_token]
    ours = [
        at
        for image in filled.images
        for at in range(image.start, image.start + image.length)
        if expected[at] == seer.image_token
    ]
    assert ours == places
    assert all(
        expected[image.start + image.length - 1] == seer.image_token for image in filled.images
    )


@pytest.fixture(scope="module")
def tower(seer: Seer) -> VisionTower:
    return VisionTower(read_config(seer.path), torch.float32, torch.device("cpu"))


SIDE = st.integers(1, 90) | st.integers(1, 2000)


@settings(max_examples=examples(200), deadline=None)
@given(width=SIDE, height=SIDE)
@example(width=1, height=1)
@example(width=1, height=500)
@example(width=2000, height=7)
def test_an_image_of_any_size_has_as_many_embeddings_as_tokens(
    seer: Seer, tower: VisionTower, width: int, height: int
) -> None:
    """Or is refused: what the tower cannot take would end the engine."""
    try:
        (one,) = seer.ours.process(Image.new("RGB", (width, height), (10, 200, 30)))
    except ImageError:
        assert type(seer.processor) is RowProcessor, "for images of one token or of extreme shape"
        return
    tokens = one.token_ids.count(seer.image_token)
    (found,) = tower.encode([PixelValues(one.digest, tokens, one.arrays)])
    assert len(found) == tokens
    assert found.isfinite().all()


def test_a_processor_that_does_not_fit_the_tower_is_refused(tmp_path: Path) -> None:
    """While the model loads."""
    file = save_llava_next(tmp_path) / "processor_config.json"
    config = read_config(tmp_path)
    tower = VisionTower(config, torch.float32, torch.device("cpu"))
    try_tower(tower, config)
    file.write_text(file.read_text().replace('"patch_size": 14', '"patch_size": 7'))
    with pytest.raises(BrokenCheckpoint, match="does not fit its vision part"):
        try_tower(tower, config)


def test_images_of_equal_size_have_other_digests(seer: Seer) -> None:
    """A white one and a black one, and a photograph and its mirror image."""
    white, black = (Image.new("RGB", (90, 60), colour) for colour in ("white", "black"))
    cat = photograph("chelsea.png")
    mirrored = cat.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    digests = {seer.ours.process(image)[0].digest for image in (white, black, cat, mirrored)}
    assert len(digests) == 4
    assert seer.ours.process(cat)[0].digest in digests


@pytest.mark.parametrize("save", [save_pixtral, save_mistral3])
def test_marks_behind_rows_are_those_of_transformers(
    save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class for Pixtral needs torchvision only to be imported."""
    seer = Seer(save(tmp_path))
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
    for name in (*names, "torchvision.transforms.v2.functional"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[names[-1]], "functional", None, raising=False)
    theirs = import_module("transformers.models.pixtral.processing_pixtral").PixtralProcessor
    merged = 2 if save is save_mistral3 else 1
    ours = seer.processor
    processor = theirs(
        ours.image_processor, ours.tokenizer, patch_size=4, spatial_merge_size=merged
    )
    for name in NAMES:
        found = ours(images=[photograph(name)], text=["a [IMG] b"], add_special_tokens=False)
        expected = processor(
            images=[photograph(name)],
            text=["a [IMG] b"],
            add_special_tokens=False,
            return_tensors="np",
        )
        assert list(found["input_ids"][0]) == expected["input_ids"][0].tolist()
        np.testing.assert_array_equal(found["pixel_values"], expected["pixel_values"])


def test_where_images_cannot_be_seen_a_model_reads_text(tmp_path: Path) -> None:
    config = read_config(save_gemma3(tmp_path))
    assert blindness(config) is None
    (tmp_path / "processor_config.json").unlink()
    assert "no processor_config.json" in str(blindness(config))


def test_other_models_with_parts_for_images_are_refused_by_name(tmp_path: Path) -> None:
    """All that transformers knows, with their default configs."""
    refused: set[str] = set()
    for kind, names in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items():
        architecture = names if isinstance(names, str) else names[0]
        try:
            fields = CONFIG_MAPPING[kind]().to_dict()
            text = json.dumps(fields | {"architectures": [architecture]}, allow_nan=False)
        except (TypeError, ValueError):  # no config without arguments, or not one for a file
            continue
        if architecture in WITH_IMAGES or "text_config" not in fields:
            continue
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UnsupportedModel, match=f"{architecture}.* parts for more than text"):
            read_config(tmp_path)
        refused.add(architecture)
    assert len(refused) > 30
    assert "Llama4ForConditionalGeneration" in refused, "its text is refused, too"


_FIRST_NAMES = {
    "model.language_model.": "language_model.model.",
    "lm_head.": "language_model.lm_head.",
    "model.vision_tower.": "vision_tower.",
    "model.multi_modal_projector.": "multi_modal_projector.",
    "model.image_newline": "image_newline",
}


def test_tensors_with_their_first_names_are_found(seer: Seer, tmp_path: Path) -> None:
    """Those of published files, which transformers has renamed since; Idefics3's are the same."""
    shutil.copytree(seer.path, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    renamed = {}
    for name, tensor in tensors.items():
        first = next((old for old in _FIRST_NAMES if name.startswith(old)), "")
        renamed[_FIRST_NAMES.get(first, "") + name.removeprefix(first)] = tensor
    if type(seer.model).__name__.startswith("Idefics3"):
        renamed = tensors
    else:
        assert any(name.startswith("vision_tower.") for name in renamed)
    save_file(renamed, file, metadata={"format": "pt"})
    asked = Asked(Seer(tmp_path), text_with("the ", " fox"), ("chelsea.png",))
    with engines_with(asked.seer) as worlds:
        world = worlds()
        asked.send(world, "one", 5)
        world.run()
    assert world.tokens["one"] == seer.greedy(asked.text, asked.pictures, 5)
