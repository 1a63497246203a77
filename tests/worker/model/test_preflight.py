"""What is wrong with a model is said before anything starts, and what would be right."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from pando_worker.host_memory import machine_bytes
from pando_worker.models.config import read_config
from pando_worker.models.errors import (
    BrokenCheckpoint,
    DoesNotFit,
    ModelError,
    ModelNotFound,
    UnsupportedModel,
)
from pando_worker.models.loading import preflight as module
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.preflight import preflight
from pando_worker.models.transformers_backend.known import check_known
from pando_worker.settings import WorkerSettings

TINY = Path(__file__).parents[3] / "examples" / "models" / "pando-tiny"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "model"))


def look(model: Path, **settings: Any) -> None:
    preflight(model, WorkerSettings(model=str(model), **settings))


def shards(model: Path) -> list[Path]:
    """The model's weights in two files."""
    tensors = sorted(load_file(model / "model.safetensors").items())
    (model / "model.safetensors").unlink()
    half, paths = len(tensors) // 2, []
    weight_map: dict[str, str] = {}
    for number, part in enumerate((tensors[:half], tensors[half:]), 1):
        path = model / f"model-{number:05}-of-00002.safetensors"
        save_file(dict(part), path)
        weight_map |= {name: path.name for name, _ in part}
        paths.append(path)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return paths


def test_a_whole_model_passes(model: Path) -> None:
    look(model)
    shards(model)
    look(model)


def test_a_file_that_was_cut_is_named_with_what_is_missing(model: Path) -> None:
    _, last = shards(model)
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 3 * 2**19)
    with pytest.raises(BrokenCheckpoint, match=rf"{last.name} ends 1\.5 MiB early: download"):
        look(model)
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(BrokenCheckpoint, match=rf"{last.name}: it ends within its header"):
        look(model)
    last.unlink()
    with pytest.raises(BrokenCheckpoint, match=rf"lacks {last.name} of 2 files: download"):
        look(model)
    look(model, load_format="dummy")


def test_a_pointer_of_git_lfs_is_no_file(model: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"
    (model / "model.safetensors").write_bytes(pointer)
    with pytest.raises(BrokenCheckpoint, match="git lfs pull"):
        look(model)


def test_a_model_without_a_tokenizer_and_one_with_half_of_it_are_refused(model: Path) -> None:
    path = model / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BrokenCheckpoint, match=r"cannot read .*tokenizer\.json: .*; download it"):
        look(model)
    path.unlink()
    with pytest.raises(BrokenCheckpoint, match=r"has no tokenizer: none of tokenizer\.json"):
        look(model)


@pytest.mark.parametrize("good", ["{% generation %}x{% endgeneration %}", "{{ a }}{% break %}"])
def test_a_broken_template_is_refused_and_transformers_own_tags_are_none(
    model: Path, good: str
) -> None:
    path = model / "chat_template.jinja"
    path.write_text("\n{% if x %}")
    with pytest.raises(BrokenCheckpoint, match=r"chat_template\.jinja is no chat template: line 2"):
        look(model)
    path.write_text(good if "break" not in good else "{% for a in b %}{% break %}{% endfor %}")
    look(model)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% if x %}", r"^chat_template in .*tokenizer_config\.json is no chat template: line 1"),
        ([{"name": "rag", "template": "\n{{"}], r"^chat_template 'rag' in .*: line 2"),
        ({"rag": "{% for %}"}, r"^chat_template 'rag' in .*: line 1"),
        (3, r"^cannot read .*tokenizer_config\.json: .*chat_template"),
        ([{"name": "default", "template": "{{ messages }}"}], None),
        (None, None),
    ],
)
def test_a_broken_template_of_the_tokenizers_config_counts_unless_a_file_replaces_it(
    model: Path, template: object, problem: str | None
) -> None:
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    look(model)
    (model / "chat_template.jinja").unlink()
    if problem is None:
        look(model)
        return
    with pytest.raises(BrokenCheckpoint, match=problem):
        look(model)


def test_more_memory_than_there_is_and_less_than_the_weights_take_are_refused(model: Path) -> None:
    there = machine_bytes() / 2**30
    with pytest.raises(DoesNotFit, match=r"memory_gib is 1e\+06, and there are .* of memory here"):
        look(model, memory_gib=1e6)
    look(model, memory_gib=there)
    weights = load_file(model / "model.safetensors").values()
    needed = sum(tensor.numel() for tensor in weights) * torch.float32.itemsize
    look(model, memory_gib=needed / 2**30)
    size = rf"{needed / 2**20:.1f} MiB"
    with pytest.raises(DoesNotFit, match=rf"its weights take {size} in memory, .* are allowed"):
        look(model, memory_gib=(needed - 1) / 2**30)
    look(model, memory_gib=needed / 2**30 / 2, dtype="bfloat16")
    look(model, memory_gib=needed / 2**30 / 4, quantization="int8")


def test_an_architecture_that_nobody_knows_is_refused(model: Path) -> None:
    path = model / "config.json"
    config = json.loads(path.read_text())
    unknown = {"architectures": ["NoneSuchForCausalLM"], "model_type": "none_such"}
    path.write_text(json.dumps(config | unknown))
    with pytest.raises(UnsupportedModel, match=r"NoneSuch.* does not know this architecture; a n"):
        look(model)
    path.write_text(json.dumps(config | unknown | {"model_type": "granite"}))
    look(model)  # transformers' own code may serve a repository's variant of it
    path.write_text(json.dumps(config | {"model_type": "none_such"}))
    look(model)  # Pando's own code runs it by its architecture
    with pytest.raises(UnsupportedModel, match="does not know this architecture"):
        look(model, model_impl="transformers")


def test_all_architectures_of_transformers_are_known(model: Path) -> None:
    from transformers import CONFIG_MAPPING

    config = replace(read_config(model), architecture="SomeForCausalLM")
    for name in CONFIG_MAPPING:
        check_known(replace(config, fields={"model_type": name}))


def test_an_adapter_of_the_hub_is_checked_when_its_directory_is_known(
    model: Path, tmp_path: Path
) -> None:
    settings = WorkerSettings(model=str(model), lora_modules=("pirate=some/adapter",))
    preflight(model, settings)  # nobody asks the hub
    with pytest.raises(BrokenCheckpoint, match=r"^adapter 'pirate' .* no adapter_config\.json"):
        preflight(model, settings, lambda name: tmp_path)


def test_an_adapter_that_is_none_is_refused(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    for path, problem in (
        (adapter, "there is no directory"),
        ("adapter", r"'adapter' cannot be an adapter's hub id \(ORG/NAME\)"),
        (model, "has no adapter_config.json: it is no adapter in PEFT's form"),
    ):
        with pytest.raises(
            BrokenCheckpoint, match=f"^adapter 'pirate' of lora_modules: .*{problem}"
        ):
            look(model, lora_modules=(f"pirate={path}",))
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "IA3"}')
    with pytest.raises(BrokenCheckpoint, match="adapter of kind 'IA3'; only LoRA is supported"):
        look(model, lora_modules=(f"pirate={adapter}",))
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(BrokenCheckpoint, match=r"has no adapter_model\.safetensors"):
        look(model, lora_modules=(f"pirate={adapter}",))
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    look(model, lora_modules=(f"pirate={adapter}", "of-the-hub=org/name"))


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pando_worker.host_memory.MEMORY_MAX", tmp_path / "memory.max")
    there = machine_bytes()
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_bytes() == there
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine_bytes() == 1_000_000


def test_a_file_that_is_no_model_is_said_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("x")
    with pytest.raises(ModelNotFound, match=r"notes\.txt is a file, and no GGUF file"):
        resolve_model("notes.txt")


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ModelError) as raised:
        resolve_model("nobody/nothing-at-all")
    assert "there is no directory 'nobody/nothing-at-all'" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_it_takes_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from pathlib import Path; from pando_worker.settings import WorkerSettings;"
        f" from {module.__name__} import preflight; m = {str(TINY)!r};"
        " preflight(Path(m), WorkerSettings(model=m));"
        " print({'torch', 'transformers', 'safetensors'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
