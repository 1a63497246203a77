"""Checkpoints without a head, the form of embedding models: hidden states equal those of
transformers, whether config.json names the base class or not."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]
from safetensors.torch import load_file

from pando_worker.models.config import ModelImpl, read_config
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.loading.hub import FILES, IGNORED_FILES
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.conftest import References
from tests.worker.model.families import FAMILIES
from tests.worker.model.paged import BareModel, Row

TOKENS = prompt(20)


def saved_without_head(reference: Reference, target: Path, **shards: str) -> Path:
    reference.model.model.save_pretrained(target, **shards)
    return target


def assert_hidden_states_are_equal(
    model_dir: Path, reference: Reference, impl: ModelImpl = "pando"
) -> None:
    model = BareModel(model_dir, context_length=reference.context_length, impl=impl)
    hidden = model.hidden([Row(TOKENS)])
    torch.testing.assert_close(hidden, reference.hidden(TOKENS), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_states_of_a_model_without_head_equal_those_of_transformers(
    reference_of: References, tmp_path: Path, name: str
) -> None:
    reference = reference_of(name)
    path = saved_without_head(reference, tmp_path)
    assert not any(name.startswith("model.") for name in load_file(path / "model.safetensors"))
    assert not read_config(path).has_head
    assert read_config(reference.path).has_head
    assert_hidden_states_are_equal(path, reference)


def test_transformers_runs_a_model_without_head_as_well(
    reference_of: References, tmp_path: Path
) -> None:
    reference = reference_of("qwen3")
    path = saved_without_head(reference, tmp_path)
    assert_hidden_states_are_equal(path, reference, "transformers")


@pytest.mark.parametrize("name", ["qwen3", "llama, biases, tied"])
def test_a_config_may_name_the_class_with_the_head(
    reference_of: References, tmp_path: Path, name: str
) -> None:
    reference = reference_of(name)
    path = saved_without_head(reference, tmp_path)
    (path / "config.json").write_bytes((reference.path / "config.json").read_bytes())
    assert not read_config(path).has_head
    assert_hidden_states_are_equal(path, reference)


def test_a_base_class_may_have_the_names_of_the_class_with_the_head(
    reference_of: References, tmp_path: Path
) -> None:
    reference = reference_of("llama, biases, tied")
    config = json.loads((reference.path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaModel"]}))
    (tmp_path / "model.safetensors").symlink_to(reference.path / "model.safetensors")
    assert not read_config(tmp_path).has_head
    assert_hidden_states_are_equal(tmp_path, reference)


def test_a_sharded_model_without_head_is_known_by_its_index(
    reference_of: References, tmp_path: Path
) -> None:
    reference = reference_of("qwen3")
    path = saved_without_head(reference, tmp_path, max_shard_size="20KB")
    assert (path / "model.safetensors.index.json").is_file()
    (path / "config.json").write_bytes((reference.path / "config.json").read_bytes())
    assert not read_config(path).has_head
    assert_hidden_states_are_equal(path, reference)


@pytest.mark.parametrize("content", [b"\xff" * 16, b"\x02\0\0\0\0\0\0\0[]", b""])
def test_a_broken_file_is_said_to_be_broken(
    reference_of: References, tmp_path: Path, content: bytes
) -> None:
    config = reference_of("qwen3").path / "config.json"
    (tmp_path / "config.json").write_bytes(config.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(BrokenCheckpoint, match="cannot read"):
        read_config(tmp_path)


def test_of_a_repositorys_subfolders_the_parts_of_an_embedding_are_fetched() -> None:
    wanted = ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"]
    wanted += ["2_Dense/config.json", "2_Dense/model.safetensors", "3_Dense/config.json"]
    others = ["onnx/config.json", "2_Dense/pytorch_model.bin", "0_Transformer/config.json", "a.bin"]
    found = filter_repo_objects(
        wanted + others, allow_patterns=FILES, ignore_patterns=IGNORED_FILES
    )
    assert list(found) == wanted
