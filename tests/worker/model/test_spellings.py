"""Configs and checkpoints in their publishers' form, where transformers 5 writes another."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from pando_worker.models.config import family_config, read_config
from pando_worker.models.families import gemma3
from pando_worker.models.loading.building import build_model
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import CPU, BareModel, Row

GEMMA3_4B: dict[str, Any] = {  # all fields of the file's language model
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
}


def edited(source: Path, target: Path, removed: tuple[str, ...], **fields: Any) -> Path:
    """The same weights with another config."""
    config = json.loads((source / "config.json").read_text()) | fields
    for name in removed:
        del config[name]
    target.mkdir()
    (target / "config.json").write_text(json.dumps(config))
    (target / "model.safetensors").symlink_to(source / "model.safetensors")
    return target


@pytest.mark.parametrize(
    ("family", "removed", "fields"),
    [
        ("qwen3-moe", ("num_local_experts",), {"num_experts": 6}),
        (
            "gemma2",
            ("layer_types", "rope_parameters", "tie_word_embeddings"),
            {"hidden_act": "gelu_pytorch_tanh", "rope_theta": 10000.0},
        ),
        (
            "gemma3",
            ("layer_types", "rope_parameters"),
            {
                "sliding_window_pattern": 2,
                "rope_theta": 500.0,
                "rope_local_base_freq": 50.0,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
        (
            "gpt-oss",
            ("rope_parameters", "layer_types"),
            {
                "rope_theta": 100.0,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                    "truncate": False,
                },
            },
        ),
    ],
)
def test_older_spelling_of_a_config_means_the_same(
    reference_of: References,
    tmp_path: Path,
    family: str,
    removed: tuple[str, ...],
    fields: dict[str, Any],
) -> None:
    reference = reference_of(family)
    model = BareModel(edited(reference.path, tmp_path / "model", removed, **fields))
    expected = reference.all_logits(prompt(20))
    torch.testing.assert_close(model.run([Row(prompt(20))]), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_language_model_of_a_model_with_images_is_served(
    reference_of: References, tmp_path: Path, prefix: str
) -> None:
    """With both names of its tensors, and without the vision part."""
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "image_size": 28}
    reference = reference_of("gemma3")
    text = json.loads((reference.path / "config.json").read_text())
    whole = Gemma3ForConditionalGeneration(
        Gemma3Config(text_config=text, vision_config=vision | {"num_attention_heads": 1})
    )
    whole.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    language = load_file(reference.path / "model.safetensors")
    others = {
        name: tensor
        for name, tensor in load_file(file).items()
        if not name.startswith("language_model.")
    }
    assert others, "there must be something to leave out"
    save_file(
        others | {prefix + name.removeprefix("model."): t for name, t in language.items()},
        file,
        metadata={"format": "pt"},
    )
    logits = BareModel(tmp_path).run([Row(prompt(20))])
    torch.testing.assert_close(logits, reference.all_logits(prompt(20)), atol=2e-4, rtol=2e-4)


def test_fields_that_gemma_3_files_leave_out_are_those_of_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GEMMA3_4B))
    model = build_model(read_config(tmp_path), torch.bfloat16, CPU)
    with torch.device("meta"):
        theirs = Gemma3ForConditionalGeneration(Gemma3Config(**GEMMA3_4B)).model.language_model
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs.parameters())
    config = theirs.config
    assert [layer.window for layer in model.attention_layers] == [
        1024 if kind == "sliding_attention" else None for kind in config.layer_types
    ]
    ours = family_config(read_config(tmp_path), gemma3.Config)
    assert config.rope_parameters == {
        "full_attention": msgspec.to_builtins(ours.rope),
        "sliding_attention": msgspec.to_builtins(ours.sliding_rope),
    }
