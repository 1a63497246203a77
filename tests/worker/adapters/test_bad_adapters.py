"""Adapters that cannot be used: each is refused with a message that says why."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.peft_config import FILE
from pando_worker.adapters.tensor_file import WEIGHTS
from tests.worker.adapters.peft_adapters import PeftAdapters
from tests.worker.model.conftest import References
from tests.worker.model.paged import Paged

Q = "base_model.model.model.layers.0.self_attn.q_proj"
Change = Callable[[Path], object]


def fields(**changes: Any) -> Change:
    """Change fields of adapter_config.json."""

    def change(adapter: Path) -> None:
        path = adapter / FILE
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def tensors(changed: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Change:
    """Change the tensors of the file."""

    def change(adapter: Path) -> None:
        save_file(changed(load_file(adapter / WEIGHTS)), adapter / WEIGHTS)

    return change


def without(name: str) -> Change:
    return tensors(lambda all_: {key: value for key, value in all_.items() if key != name})


def with_tensor(name: str, tensor: Tensor) -> Change:
    return tensors(lambda all_: all_ | {name: tensor})


def a_pickle(adapter: Path) -> None:
    torch.save(load_file(adapter / WEIGHTS), adapter / "adapter_model.bin")
    (adapter / WEIGHTS).unlink()


def a_pipe(adapter: Path) -> None:
    (adapter / WEIGHTS).unlink()
    os.mkfifo(adapter / WEIGHTS)


def a_huge_header(adapter: Path) -> None:
    (adapter / WEIGHTS).write_bytes(struct.pack("<Q", 1 << 40) + b"{}")


def half(adapter: Path) -> None:
    data = (adapter / WEIGHTS).read_bytes()
    (adapter / WEIGHTS).write_bytes(data[: len(data) // 2])


def huge(adapter: Path) -> None:
    with (adapter / WEIGHTS).open("r+b") as file:
        file.truncate(1 << 40)  # sparse


def a_pipe_as_config(adapter: Path) -> None:
    (adapter / FILE).unlink()
    os.mkfifo(adapter / FILE)


def a_huge_config(adapter: Path) -> None:
    with (adapter / FILE).open("r+b") as file:
        file.truncate(1 << 30)  # sparse


def header(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    """Change what the file says of its tensors."""

    def changed(adapter: Path) -> None:
        data = (adapter / WEIGHTS).read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        written = json.dumps(change(json.loads(data[8:end]))).encode()
        (adapter / WEIGHTS).write_bytes(struct.pack("<Q", len(written)) + written + data[end:])

    return changed


def an_endless_header(adapter: Path) -> None:
    nested = b'{"x":' + b"[" * 200_000
    (adapter / WEIGHTS).write_bytes(struct.pack("<Q", len(nested)) + nested)


def first_with(all_: dict[str, Any], **fields: Any) -> dict[str, Any]:
    key = next(key for key in all_ if key != "__metadata__")
    return all_ | {key: all_[key] | fields}


def one(value: float) -> Tensor:
    tensor = torch.zeros(4, 32)
    tensor[3, 7] = value
    return tensor


BAD: dict[str, tuple[Change, str]] = {
    "DoRA": (fields(use_dora=True), "DoRA, which is not supported"),
    "QALoRA": (fields(use_qalora=True), "QALoRA"),
    "aLoRA": (fields(alora_invocation_tokens=[1]), "aLoRA"),
    "trainable tokens": (fields(trainable_token_indices=[1]), "trainable tokens"),
    "a head that is not there": (
        fields(modules_to_save=["lm_head"]),
        "has no tensors for lm_head.weight, which its modules_to_save name",
    ),
    "a whole norm": (
        with_tensor("base_model.model.model.norm.weight", torch.zeros(1, 32)),
        "the whole module model.norm; only the embedding and the head",
    ),
    "a whole layer": (
        with_tensor(f"{Q}.weight", torch.zeros(32, 32)),
        "the whole module model.layers.0.self_attn.q_proj; only",
    ),
    "a head of another vocabulary": (
        with_tensor("base_model.model.lm_head.weight", torch.zeros(98, 32)),
        r"lm_head.weight is \[98, 32\]; with this model it must be \[97, 32\]",
    ),
    "an embedding's matrices elsewhere": (
        with_tensor(f"{Q}.lora_embedding_A", torch.zeros(4, 32)),
        "lora_embedding_A, which does not fit",
    ),
    "an adapter of the head": (
        with_tensor("base_model.model.lm_head.lora_A.weight", torch.zeros(4, 32)),
        "has no lm_head.lora_B.weight, only the other",
    ),
    "two adapters of a layer": (
        with_tensor(f"{Q}.base_layer.lora_A.weight", torch.zeros(4, 32)),
        "has two adapters of model.layers.0.self_attn.q_proj",
    ),
    "experts of a model without": (
        with_tensor("base_model.model.model.layers.0.mlp.experts.lora_A.weight", torch.ones(9, 9)),
        "has tensors for model.layers.0.mlp.experts, which this model lacks",
    ),
    "a parameter that has none": (
        fields(target_parameters=["q_proj.weight", "lm_head.weight"]),
        "has no tensors for lm_head, which its target_parameters name",
    ),
    "layer replication": (fields(layer_replication=[[0, 1]]), "layer replication"),
    "another kind": (fields(peft_type="IA3"), "kind 'IA3'; only LoRA"),
    "no kind": (fields(peft_type=None), "kind None; only LoRA"),
    "a newer field": (fields(use_quantum=True), "uses use_quantum, which this worker does not"),
    "biases": (fields(bias="all"), r"trains biases \(bias: 'all'\)"),
    "its own biases": (fields(lora_bias=True), "lora_bias"),
    "pissa": (fields(init_lora_weights="pissa_niter_4"), "change the base model as well"),
    "a classifier": (fields(task_type="SEQ_CLS"), "for the task SEQ_CLS"),
    "rank 0": (fields(r=0), "has rank 0; it must be from 1 to 256"),
    "rank 257": (fields(rank_pattern={"q_proj": 257}), "has rank 257"),
    "a rank in words": (fields(r="eight"), "r must be an integer, not a string"),
    "rank above the setting": (
        fields(rank_pattern={"q_proj": 80}),
        "rank 80 at model.layers.0.self_attn.q_proj; max_lora_rank allows 64",
    ),
    "another rank than its tensors": (
        fields(r=5),
        r"is \[4, \d+\]; with rank 5 and this model it must be \[5, \d+\]",
    ),
    "a rank that is a truth": (fields(r=True), "r must be an integer, not a boolean"),
    "a negative rank": (fields(r=-1), "has rank -1"),
    "a scale beyond float32": (fields(lora_alpha=1e300), r"has the scale 2.5e\+299"),
    "a pipe as configuration": (a_pipe_as_config, "no regular file"),
    "a configuration of 1 GB": (a_huge_config, "is larger than 1048576 bytes"),
    "a configuration nested without end": (
        lambda adapter: (adapter / FILE).write_text('{"x":' + "[" * 200_000),
        "cannot read .*maximum recursion depth",
    ),
    "a field with a long name": (fields(**{"x" * 100_000: 1}), "uses xxxxx"),
    "many slow patterns": (
        fields(rank_pattern={rf"(?:.+?.+?){{1,2}}_\d|x{number}": 4 for number in range(400)}),
        "the patterns of adapter_config.json take too long to match",
    ),
    "tensors that share their bytes": (
        header(
            lambda all_: (
                all_ | {f"{Q}{n}.lora_A.weight": all_[f"{Q}.lora_A.weight"] for n in range(3_000)}
            )
        ),
        "its tensors overlap",
    ),
    "a tensor beyond the end": (
        header(lambda all_: first_with(all_, data_offsets=[10**12, 10**12 + 512])),
        "has the bytes from 1000000000000 to",
    ),
    "a tensor that ends before it begins": (
        header(lambda all_: first_with(all_, data_offsets=[512, 0])),
        "has the bytes from 512 to 0",
    ),
    "a tensor of another size": (
        header(lambda all_: first_with(all_, shape=[2**40, 2**40])),
        "has the bytes from",
    ),
    "a tensor with a long name": (
        with_tensor("y" * 100_000, torch.zeros(1, 1)),
        "has a tensor yyyyy",
    ),
    "a header nested without end": (an_endless_header, "cannot read .*maximum recursion depth"),
    "an endless pattern": (
        fields(target_modules=r"(?:.+?.+?.+?)+_\d"),
        "takes too long to match",
    ),
    "no pattern": (fields(alpha_pattern={"(": 3}), "is no regular expression"),
    "no config": (lambda adapter: (adapter / FILE).unlink(), "has no adapter_config.json"),
    "no JSON": (lambda adapter: (adapter / FILE).write_text("{"), "cannot read .*config.json"),
    "a list": (lambda adapter: (adapter / FILE).write_text("[1]"), "it must be an object"),
    "no weights": (lambda adapter: (adapter / WEIGHTS).unlink(), f"has no {WEIGHTS}"),
    "a pickle": (a_pickle, "adapter_model.bin, a pickle, which may run any code"),
    "a pipe": (a_pipe, "no regular file"),
    "a huge header": (a_huge_header, "its header claims 1099511627776 bytes"),
    "half a file": (half, f"cannot read .*{WEIGHTS}"),
    "a huge file": (huge, r"has 1099511627776 bytes; host memory for adapters has \d+"),
    "no pair": (without(f"{Q}.lora_B.weight"), r"has no model.*q_proj.lora_B.weight, only the"),
    "a module missing": (
        tensors(lambda all_: {k: v for k, v in all_.items() if not k.startswith(Q)}),
        "has no tensors for model.layers.0.self_attn.q_proj, which its target_modules name",
    ),
    "a module too many": (
        fields(target_modules=["k_proj"]),
        "has tensors for .*, which its target_modules do not name",
    ),
    "an unknown module": (
        with_tensor(Q.replace("layers.0", "layers.7") + ".lora_A.weight", torch.zeros(4, 32)),
        "layers.7.self_attn.q_proj, which this model lacks",
    ),
    "a vision tower": (
        with_tensor("base_model.model.vision_tower.x.lora_A.weight", torch.zeros(4, 32)),
        "of a part that takes no adapters here",
    ),
    "another prefix": (with_tensor("transformer.x", torch.zeros(1, 1)), "does not begin with"),
    "a magnitude": (
        with_tensor(f"{Q}.lora_magnitude_vector", torch.zeros(32)),
        "none of a plain LoRA adapter",
    ),
    "a vector": (with_tensor(f"{Q}.lora_A.weight", torch.zeros(4)), "it must be a matrix"),
    "another width": (
        with_tensor(f"{Q}.lora_A.weight", torch.zeros(4, 31)),
        r"is \[4, 31\]; with rank 4 and this model it must be \[4, 32\]",
    ),
    "integers": (
        with_tensor(f"{Q}.lora_A.weight", torch.zeros(4, 32, dtype=torch.int8)),
        "has the type I8; it must be floating-point",
    ),
    "NaN": (with_tensor(f"{Q}.lora_A.weight", one(torch.nan)), "numbers that are not finite"),
    "infinity": (with_tensor(f"{Q}.lora_A.weight", one(torch.inf)), "numbers that are not finite"),
    "infinity in bfloat16": (
        with_tensor(f"{Q}.lora_A.weight", one(-torch.inf).bfloat16()),
        "numbers that are not finite",
    ),
    "too large for the model": (
        with_tensor(f"{Q}.lora_A.weight", torch.full((4, 32), 1e300, dtype=torch.float64)),
        "numbers that are too large for torch.float32",
    ),
}


@pytest.fixture(scope="module")
def good(reference_of: References, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    return PeftAdapters(reference_of("llama"), folder, {"good": {"r": 4}}).paths["good"]


@pytest.fixture(scope="module")
def paged(reference_of: References) -> Paged:
    return Paged(
        reference_of("llama").path,
        cpu_kernels="off",
        max_loras=2,
        max_lora_rank=64,
        lora_host_mib=1,
    )


@pytest.mark.parametrize("name", BAD)
def test_a_bad_adapter_is_refused_with_its_reason(
    name: str, good: Path, paged: Paged, tmp_path: Path
) -> None:
    change, message = BAD[name]
    adapter = tmp_path / "adapter"
    shutil.copytree(good, adapter)
    assert paged.runner.adapters is not None
    paged.runner.adapters.check(str(adapter)).result()  # as long as it is unchanged
    change(adapter)
    with pytest.raises(AdapterError, match=message) as caught:
        paged.runner.adapters.check(str(adapter)).result()
    assert len(str(caught.value)) < 1100


def test_a_missing_directory_is_refused(paged: Paged, tmp_path: Path) -> None:
    assert paged.runner.adapters is not None
    names = (str(tmp_path / "nothing"), "", "no such/hub/id", "../../../..//etc/passwd", "a\0b")
    for name in names:
        with pytest.raises(AdapterError, match="there is no directory"):
            paged.runner.adapters.check(name).result()
    with pytest.raises(AdapterError, match="File name too long"):
        paged.runner.adapters.check("a" * 4_000).result()
    with pytest.raises(AdapterError, match=r"has no adapter_config\.json"):
        paged.runner.adapters.check("/proc/self").result()


def test_links_are_followed_as_in_the_hubs_cache(good: Path, paged: Paged, tmp_path: Path) -> None:
    """A snapshot there has links to files elsewhere. What they lead to is read as any other."""
    assert paged.runner.adapters is not None
    for name in (FILE, WEIGHTS):
        (tmp_path / name).symlink_to(good / name)
    identity = paged.runner.adapters.check(str(good)).result().identity
    assert paged.runner.adapters.check(str(tmp_path)).result().identity == identity
    (tmp_path / WEIGHTS).unlink()
    (tmp_path / WEIGHTS).symlink_to("/etc/passwd")
    with pytest.raises(AdapterError, match="its header claims") as caught:
        paged.runner.adapters.check(str(tmp_path)).result()
    assert "root:" not in str(caught.value), "nothing of the file is said"
