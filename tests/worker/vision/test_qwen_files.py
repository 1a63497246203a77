"""Checkpoints of Qwen-VL as their publisher wrote them, where transformers writes another form."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from pando_worker.batch import PixelValues
from pando_worker.models.config import family_config, read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.families import qwen2, qwen3
from pando_worker.models.loading.building import build_model
from pando_worker.models.rope import DefaultRope, MRope
from pando_worker.models.transformers_backend.tower import VisionTower
from tests.worker.model.paged import CPU
from tests.worker.model.test_quantization import BLOCK, by_block, stored_scale
from tests.worker.vision.engines import engines_with
from tests.worker.vision.photographs import photograph
from tests.worker.vision.prompts import Asked, text_with
from tests.worker.vision.qwen import QwenSeer, save_qwen

QWEN2_5_VL_7B: dict[str, Any] = {  # all fields of the file's language model
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 128000,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vision_config": {"model_type": "qwen2_5_vl", "depth": 1},
    "vocab_size": 152064,
}


QWEN3_VL_8B: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "image_token_id": 151655,
    "model_type": "qwen3_vl",
    "text_config": {
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 262144,
        "model_type": "qwen3_vl_text",
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "mrope_interleaved": True,
            "mrope_section": [24, 20, 20],
            "rope_type": "default",
        },
        "rope_theta": 5000000,
        "vocab_size": 151936,
    },
    "tie_word_embeddings": False,
    "vision_config": {"model_type": "qwen3_vl", "depth": 1, "deepstack_visual_indexes": [0]},
}


def test_fields_of_qwen3_vl_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_VL_8B))
    config = read_config(tmp_path)
    assert (config.image_token, config.max_position_embeddings) == (151_655, 262_144)
    model = build_model(config, torch.bfloat16, CPU)
    with torch.device("meta"):
        whole = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**QWEN3_VL_8B))
    theirs = [*whole.model.language_model.parameters(), *whole.lm_head.parameters()]
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs)
    ours = family_config(config, qwen3.Config)
    assert ours.mrope == MRope((24, 20, 20), interleaved=True)
    assert ours.rope == DefaultRope(rope_theta=5_000_000)


def test_fields_beside_those_of_the_vision_part_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN2_5_VL_7B))
    config = read_config(tmp_path)
    assert config.image_token == 151_655
    model = build_model(config, torch.bfloat16, CPU)
    with torch.device("meta"):
        whole = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**QWEN2_5_VL_7B))
    theirs = [*whole.model.language_model.parameters(), *whole.lm_head.parameters()]
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs)
    ours = family_config(config, qwen2.Config)
    assert ours.mrope is not None
    assert msgspec.to_builtins(ours.rope) | {"mrope_section": [*ours.mrope.sections]} == (
        {"mrope_section": [16, 24, 24]}
        | {
            name: value
            for name, value in whole.config.text_config.rope_parameters.items()
            if name != "type"
        }
    )
    assert not ours.mrope.interleaved


def test_features_for_deeper_layers_are_kept_and_counted(tmp_path: Path) -> None:
    """Two of them beside each embedding."""
    seer = QwenSeer(save_qwen(tmp_path, "qwen3-vl"))
    tower = VisionTower(read_config(tmp_path), torch.float32, CPU)
    (image,) = seer.ours.process(photograph("chelsea.png"))
    (found,) = tower.encode([PixelValues(image.digest, image.length, image.arrays)])
    assert found.nbytes == image.length * tower.embedding_bytes
    assert tower.embedding_bytes == 3 * 64 * 4
    with torch.inference_mode():
        expected = seer.model.get_image_features(
            **seer.processor.image_processor(
                images=[photograph("chelsea.png")], return_tensors="pt"
            )
        )
    levels = (expected.pooler_output, *expected.deepstack_features)
    for ours, (level,) in zip(torch.split(found, 64, dim=-1), levels, strict=True):
        torch.testing.assert_close(ours, level)


def test_tensors_with_their_first_names_are_found(tmp_path: Path) -> None:
    """And a head that is the embedding."""
    seer = QwenSeer(save_qwen(tmp_path, "qwen2-vl", tie_word_embeddings=True))
    asked = Asked(seer, text_with("the ", " fox"), ("chelsea.png",))
    expected = asked.greedy(5)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    renamed = {
        name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): tensor
        for name, tensor in tensors.items()
    }
    assert any(name.startswith("visual.") for name in renamed)
    assert "model.embed_tokens.weight" in renamed
    save_file(renamed, file, metadata={"format": "pt"})
    with engines_with(seer) as worlds:
        world = worlds()
        asked.send(world, "one", 5)
        world.run()
    assert world.tokens["one"] == expected


def test_sections_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    fields = QWEN2_5_VL_7B | {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 20]}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(BrokenCheckpoint, match="mrope_section has 60 frequencies, not 64"):
        build_model(read_config(tmp_path), torch.bfloat16, CPU)


def with_fp8(source: Path, target: Path, part: str) -> dict[str, torch.Tensor]:
    """Writes a checkpoint whose matrices in a part are fp8; returns these, decoded."""
    torch.manual_seed(1)
    shutil.copytree(source, target)
    packed = load_file(source / "model.safetensors")
    decoded = {}
    for name in [name for name in packed if part in name and name.endswith("_proj.weight")]:
        scales = by_block(packed[name])
        packed[name] = (packed[name] / scales).to(torch.float8_e4m3fn)
        packed[f"{name}_scale_inv"] = stored_scale(scales, by_block).contiguous()
        decoded[name] = packed[name].float() * scales
    assert decoded
    save_file(packed, target / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((target / "config.json").read_text())
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)}
    (target / "config.json").write_text(json.dumps(fields | {"quantization_config": quantization}))
    return decoded


def test_a_decoder_in_fp8_sees_as_its_decoded_weights(tmp_path: Path) -> None:
    """Written twice: quantized, and decoded for transformers."""
    plain = save_qwen(tmp_path / "plain", "qwen3-vl")
    decoded = with_fp8(plain, tmp_path / "fp8", "language_model")
    tensors = load_file(plain / "model.safetensors")
    save_file(tensors | decoded, plain / "model.safetensors", metadata={"format": "pt"})
    asked = Asked(QwenSeer(plain), text_with("the ", " fox"), ("chelsea.png",))
    with engines_with(QwenSeer(tmp_path / "fp8")) as worlds:
        world = worlds()
        asked.send(world, "one", 5)
        world.run()
    assert world.tokens["one"] == asked.greedy(5)


def test_a_tower_in_fp8_is_refused(tmp_path: Path) -> None:
    with_fp8(save_qwen(tmp_path / "plain", "qwen2.5-vl"), tmp_path / "fp8", "visual")
    with pytest.raises(
        UnsupportedModel, match=r"the vision part of .* is quantized \(model.visual"
    ):
        VisionTower(read_config(tmp_path / "fp8"), torch.float32, CPU)
