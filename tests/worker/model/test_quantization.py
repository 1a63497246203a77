"""Quantized checkpoints equal transformers with the decoded weights."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GptOssConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.loading.building import build_model
from pando_worker.models.parallel import ParallelGroup
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import CPU, BareModel, Row

BLOCK = (24, 20)  # divides no weight evenly
FLOAT8 = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}
GPT_OSS: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "head_dim": 8,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
}
Scales = Callable[[Tensor], Tensor]


def by_block(weight: Tensor) -> Tensor:
    rows, columns = (
        torch.arange(size) // block for size, block in zip(weight.shape, BLOCK, strict=True)
    )
    grid = torch.rand(int(rows[-1]) + 1, int(columns[-1]) + 1) * 0.02 + 0.001
    return grid[rows][:, columns]


def by_row(weight: Tensor) -> Tensor:
    return (torch.rand(len(weight), 1) * 0.02 + 0.001).expand_as(weight)


def by_tensor(weight: Tensor) -> Tensor:
    return torch.full_like(weight, 0.013)


def stored_scale(scales: Tensor, form: Scales) -> Tensor:
    """The scales in the file's form."""
    if form is by_tensor:
        return scales[0, 0]
    if form is by_row:
        return scales[:, :1]
    return scales[:: BLOCK[0], :: BLOCK[1]]


@pytest.mark.parametrize(
    ("config", "form", "suffix"),
    [
        (
            {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)},
            by_block,
            "_scale_inv",
        ),
        ({"quant_method": "fp8", "activation_scheme": "static"}, by_tensor, "_scale"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": FLOAT8}},
            by_row,
            "_scale",
        ),
    ],
    ids=["fp8 by block", "fp8 by tensor", "compressed-tensors by row"],
)
def test_fp8_checkpoint_computes_as_its_decoded_weights(
    reference_of: References,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    config: dict[str, Any],
    form: Scales,
    suffix: str,
) -> None:
    """Written twice: quantized, and decoded for transformers."""
    torch.manual_seed(1)
    source = reference_of("qwen3-moe").path
    tensors = load_file(source / "model.safetensors")
    plain, packed = dict(tensors), dict(tensors)
    for name, weight in tensors.items():
        if "_proj" in name:
            scales = form(weight)
            packed[name] = (weight / scales).to(torch.float8_e4m3fn)
            packed[f"{name}{suffix}"] = stored_scale(scales, form).contiguous()
            packed[name.replace("weight", "input_scale")] = torch.ones(1)
            plain[name] = packed[name].float() * scales
    quantized = write(source, tmp_path / "quantized", packed, config)
    decoded = write(source, tmp_path / "decoded", plain, None)

    with caplog.at_level(logging.WARNING):
        logits = BareModel(quantized).run([Row(prompt(20))])
    torch.testing.assert_close(logits, logits_of(decoded, prompt(20)), atol=2e-4, rtol=2e-4)
    assert "the weights are fp8 and are decoded while they load" in caplog.text


def test_mxfp4_experts_are_those_of_transformers(tmp_path: Path) -> None:
    """The numbers, and, if two ranks share them, a rank's part of a group of 32."""
    reference = Reference(tmp_path / "source", config_type=GptOssConfig, **GPT_OSS)
    torch.manual_seed(2)
    tensors = load_file(reference.path / "model.safetensors")
    plain, packed = dict(tensors), dict(tensors)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = packed.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        scales = torch.randint(122, 126, (experts, outputs, inputs // 32), dtype=torch.uint8)
        packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        plain[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    quantized = write(reference.path, tmp_path / "quantized", packed, {"quant_method": "mxfp4"})
    decoded = write(reference.path, tmp_path / "decoded", plain, None)

    logits = BareModel(quantized).run([Row(prompt(20))])
    torch.testing.assert_close(logits, logits_of(decoded, prompt(20)), atol=2e-4, rtol=2e-4)
    for rank in range(2):
        group = ParallelGroup(rank, 2)
        mine, theirs = (
            dict(BareModel(path, group=group).model.named_parameters())
            for path in (quantized, decoded)
        )
        for name in (name for name in mine if ".mlp." in name):
            assert torch.equal(mine[name], theirs[name]), f"{name} of rank {rank}"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "awq", "bits": 4}, "quantized by quant_method 'awq', which are not read"),
        ({"quant_method": "gptq", "bits": 4}, "'gptq'.* use the model's original checkpoint"),
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes'"),
        ({"quant_method": "mxfp4"}, "'mxfp4'"),  # of another family than GPT-OSS
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            r"compressed-tensors of 4 bits \(int\)",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": FLOAT8},
                "sparsity_config": {"format": "sparse-24-bitmask"},
            },
            "sparsity",
        ),
    ],
)
def test_other_quantizations_are_refused_with_what_to_use_instead(
    reference_of: References, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    model_dir = write(reference_of("llama").path, tmp_path / "model", {}, config)
    with pytest.raises(UnsupportedModel, match=message):
        build_model(read_config(model_dir), torch.float32, CPU)


@pytest.mark.parametrize(
    ("scale", "message"),
    [(None, "is in fp8 and has no scale"), (torch.ones(3, 5), r"is \[3, 5\], which is none for")],
)
def test_fp8_weights_without_their_scales_are_refused(
    reference_of: References, tmp_path: Path, scale: Tensor | None, message: str
) -> None:
    tensors = load_file(reference_of("llama").path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    if scale is not None:
        tensors[f"{name}_scale_inv"] = scale
    config = {"quant_method": "fp8", "weight_block_size": [8, 8]}
    model_dir = write(reference_of("llama").path, tmp_path / "model", tensors, config)
    with pytest.raises(BrokenCheckpoint, match=message):
        BareModel(model_dir)


def write(
    source: Path, target: Path, tensors: dict[str, Tensor], quantization: dict[str, Any] | None
) -> Path:
    """A checkpoint like `source` with other tensors."""
    target.mkdir()
    fields = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(fields | {"quantization_config": quantization}))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def logits_of(model_dir: Path, tokens: list[int]) -> Tensor:
    """Transformers' logits."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: Tensor = model(torch.tensor([tokens])).logits[0]
    return logits
