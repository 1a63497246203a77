"""Config files, checkpoints and hub names: what loads, and the errors for what does not."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MistralConfig, Phi3Config, Qwen3Config

from pando_worker.models.config import family_config, read_config
from pando_worker.models.errors import BrokenCheckpoint, ModelNotFound, UnsupportedModel
from pando_worker.models.families import llama
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.rope import YarnRope
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.gguf_files import write_gguf
from tests.worker.model.paged import Paged, Row

CPU = torch.device("cpu")


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return Reference(tmp_path).path


def edit_config(model_dir: Path, **changes: Any) -> None:
    path = model_dir / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(model_dir: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    edit(tensors)
    save_file(tensors, model_dir / "model.safetensors")


def llama_config(model_dir: Path) -> llama.Config:
    return family_config(read_config(model_dir, "pando"), llama.Config)


def load(model_dir: Path) -> None:
    load_weights(build_model(read_config(model_dir), torch.float32, CPU), model_dir, CPU)


def test_sharded_checkpoint_loads_like_a_single_file(tmp_path: Path) -> None:
    reference, row = Reference(tmp_path, max_shard_size="20KB"), Row(prompt(10))
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    torch.testing.assert_close(
        Paged(tmp_path).logits([row])[0], reference.logits(row.tokens), atol=1e-4, rtol=1e-4
    )


def test_weight_bytes_are_known_before_any_weight_is_loaded(model_dir: Path) -> None:
    tensors = load_file(model_dir / "model.safetensors").values()
    model = build_model(read_config(model_dir), torch.float32, CPU)
    assert weight_bytes(model) == sum(tensor.nbytes for tensor in tensors)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_tensors_that_follow_from_others_are_ignored(tmp_path: Path) -> None:
    Reference(tmp_path, tie_word_embeddings=True)

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    edit_tensors(tmp_path, add)
    load(tmp_path)


def test_missing_and_unknown_tensors_are_named(model_dir: Path) -> None:
    def rename(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.bias"] = tensors.pop("model.layers.1.self_attn.k_proj.weight")

    edit_tensors(model_dir, rename)
    with pytest.raises(
        BrokenCheckpoint,
        match=r"missing model\.layers\.1\.self_attn\.k_proj\.weight; unexpected lm_head\.bias$",
    ):
        load(model_dir)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(4, 32), torch.zeros(32, 32, dtype=torch.int8)], ids=["shape", "type"]
)
def test_misshapen_tensor_is_named(model_dir: Path, wrong: Tensor) -> None:
    name = "model.layers.0.self_attn.q_proj.weight"
    edit_tensors(model_dir, lambda tensors: tensors.update({name: wrong}))
    with pytest.raises(BrokenCheckpoint, match=f"{name} is .* asks for floating point .32, 32."):
        load(model_dir)


def test_truncated_weights_are_refused(model_dir: Path) -> None:
    path = model_dir / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BrokenCheckpoint, match=r"cannot read .*model\.safetensors"):
        load(model_dir)


def test_absent_weights_are_refused(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(BrokenCheckpoint, match="only weights in safetensors format"):
        load(model_dir)
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BrokenCheckpoint, match=r"cannot read .*00001-of-00002"):
        load(model_dir)


def test_both_spellings_of_rotary_parameters_mean_the_same(model_dir: Path) -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 256}
    edit_config(model_dir, rope_parameters=scaling | {"rope_type": "yarn", "rope_theta": 5e5})
    new = llama_config(model_dir)
    for key in ("rope_type", "type"):
        edit_config(
            model_dir, rope_parameters=None, rope_theta=500000, rope_scaling=scaling | {key: "yarn"}
        )
        assert llama_config(model_dir) == new
    assert new.rope == YarnRope(
        rope_theta=500000.0, factor=4.0, original_max_position_embeddings=256
    )


def test_config_may_leave_derived_fields_out(model_dir: Path) -> None:
    edit_config(model_dir, num_key_value_heads=None, head_dim=None, rope_parameters=None)
    config = llama_config(model_dir)
    assert (config.num_key_value_heads, config.head_dim, config.rope.rope_theta) == (4, 8, 10000.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["MambaForCausalLM"]},
            "MambaForCausalLM.*; supported: .*LlamaForCausalLM",
        ),
        ({"architectures": None}, "architectures .*; supported: .*LlamaForCausalLM"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
            "rope type 'dynamic'; supported in LlamaForCausalLM: default, linear, llama3, yarn, l",
        ),
        (
            {"partial_rotary_factor": 0.5},
            "partial_rotary_factor 0.5; supported .*: 1.0",
        ),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'; supported in LlamaForCausalLM: silu"),
    ],
)
def test_unsupported_models_are_refused_by_name(
    model_dir: Path, changes: dict[str, Any], message: str
) -> None:
    edit_config(model_dir, **changes)
    with pytest.raises(UnsupportedModel, match=message):
        llama_config(model_dir)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, r"config\.json: vocab_size is required"),
        ({"hidden_size": "32"}, "hidden_size must be an integer, not a string"),
        ({"num_key_value_heads": 3}, r"\(4\) is not a multiple of num_key_value_heads \(3\)"),
        ({"head_dim": 7}, "the number of rotary dimensions per head is odd: 7"),
        ({"rope_parameters": {"rope_type": "linear"}}, r"rope\.factor is required"),
        ({"rope_scaling": 2.0}, "rope_scaling must be an object, not a number"),
    ],
)
def test_malformed_config_is_refused_with_the_field(
    model_dir: Path, changes: dict[str, Any], message: str
) -> None:
    edit_config(model_dir, **changes)
    with pytest.raises(BrokenCheckpoint, match=message):
        build_model(read_config(model_dir), torch.float32, CPU)


LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 3,
}


@pytest.mark.parametrize(
    ("config_type", "changes", "error", "message"),
    [
        (
            Phi3Config,
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            UnsupportedModel,
            "rope type 'linear'; supported in Phi3ForCausalLM: default, longrope",
        ),
        (
            Phi3Config,
            {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 64},
            BrokenCheckpoint,
            "rope has 3 values in long_factor, not 4",
        ),
        (
            Phi3Config,
            {"rope_parameters": {"partial_rotary_factor": 1.5}},
            BrokenCheckpoint,
            r"partial_rotary_factor must be a number, at most 1\.0",
        ),
        (
            Qwen3Config,
            {"layer_types": ["full_attention"]},
            BrokenCheckpoint,
            "1 layer_types for 2 layers",
        ),
        (MistralConfig, {"sliding_window": 0}, BrokenCheckpoint, "sliding_window"),
    ],
)
def test_what_a_family_cannot_do_is_refused(
    tmp_path: Path,
    config_type: type,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    Reference(tmp_path, config_type=config_type, head_dim=8, pad_token_id=0)
    edit_config(tmp_path, **changes)
    with pytest.raises(error, match=message):
        build_model(read_config(tmp_path, "pando"), torch.float32, CPU)


def test_config_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BrokenCheckpoint, match="cannot read"):
        read_config(tmp_path)


def test_directory_resolves_to_itself(model_dir: Path) -> None:
    assert resolve_model(str(model_dir)) == model_dir


def test_directory_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"has neither config\.json nor a GGUF file"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["./missing", "/missing", "a/b/c", ""])
def test_what_is_neither_directory_nor_hub_id_is_refused(name: str) -> None:
    with pytest.raises(ModelNotFound):
        resolve_model(name)


def resolve_offline(name: str, hf_home: Path) -> str:
    """In a separate process, as the hub's client reads its variables on import."""
    code = (
        "import sys\n"
        "from pando_worker.models.errors import ModelNotFound\n"
        "from pando_worker.models.loading.hub import resolve_model\n"
        "try: print(resolve_model(sys.argv[1]))\n"
        "except ModelNotFound as error: print('ModelNotFound:', error)\n"
    )
    environment = os.environ | {
        "HF_HOME": str(hf_home),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", code, name]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_hub_id_resolves_to_its_cached_snapshot(tmp_path: Path) -> None:
    repository, commit = tmp_path / "hub/models--some--model", "0123456789" * 4
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    (snapshot / "config.json").write_text("{}")
    assert resolve_offline("some/model", tmp_path) == str(snapshot)


def test_a_gguf_file_of_a_hub_repository_is_named_after_a_colon(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository, commit = tmp_path / "hub/models--some--model", "0123456789" * 4
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    file = write_gguf(model_dir, snapshot / "small.gguf")
    said = resolve_offline("some/model:small.gguf", tmp_path)
    assert (Path(said) / "small.gguf").resolve() == file
    said = resolve_offline("some/model:other.gguf", tmp_path)
    assert said.startswith("ModelNotFound: cannot read") and "other.gguf" in said


def test_hub_id_that_is_not_cached_is_not_found_offline(tmp_path: Path) -> None:
    said = resolve_offline("some/model", tmp_path)
    assert said.startswith("ModelNotFound: there is no directory 'some/model', and as a hub id it")


def test_dummy_weights_need_no_checkpoint_but_its_config(tmp_path: Path) -> None:
    Reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    first, second = (
        # Without kernels: a race chooses them, and they round differently.
        Paged(tmp_path, load_format="dummy", cpu_kernels="off").logits([Row([1, 2, 3])])
        for _ in range(2)
    )
    assert first.isfinite().all() and first.std() > 0
    assert torch.equal(first, second)
