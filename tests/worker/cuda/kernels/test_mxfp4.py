"""GPT-OSS with experts that stay in mxfp4: the checkpoint's octets, and logits against transformers
with the decoded weights. The kernel itself: `test_fused_experts.py`."""

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cuda import mxfp4
from pando_worker.cuda.fused_experts import fused_experts
from pando_worker.cuda.mxfp4 import choose_mxfp4
from pando_worker.models.config import read_config
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.parallel import ParallelGroup
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import CPU, Pages, Row

FUSED = FusedExperts(fused_experts)
BF16 = torch.bfloat16


class Checkpoints(NamedTuple):
    packed: Path
    decoded: Path


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """The same weights in mxfp4 and decoded. All experts are used, as rounding would decide between
    two that are nearly equal."""
    folder = tmp_path_factory.mktemp("mxfp4")
    shape: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 192, "head_dim": 8}
    experts: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 4}
    source = Reference(folder / "source", config_type=GptOssConfig, **shape, **experts).path
    tensors = load_file(source / "model.safetensors")
    plain, packed = dict(tensors), dict(tensors)
    torch.manual_seed(2)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        count, inputs, outputs = packed.pop(name).shape
        blocks = torch.randint(0, 256, (count, outputs, inputs // 32, 16), dtype=torch.uint8)
        scales = torch.randint(118, 122, (count, outputs, inputs // 32), dtype=torch.uint8)
        packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        plain[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
    made = Checkpoints(folder / "packed", folder / "decoded")
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    for path, weights, added in (
        (made.packed, packed, {"quantization_config": {"quant_method": "mxfp4"}}),
        (made.decoded, plain, {}),
    ):
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config | added))
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return made


def loaded(
    path: Path,
    mxfp4: FusedExperts | None,
    group: ParallelGroup | None = None,
    *,
    expert_parallel: bool = False,
) -> CausalLM:
    config = read_config(path)
    model = build_model(config, BF16, CPU, group, mxfp4=mxfp4, expert_parallel=expert_parallel)
    load_weights(model, path, CPU)
    return cast(CausalLM, model)


def mixtures(model: CausalLM) -> list[MixtureOfExperts]:
    return [module for module in model.modules() if isinstance(module, MixtureOfExperts)]


def logits(model: CausalLM, ids: list[int]) -> torch.Tensor:
    """After each of the tokens."""
    batch = Pages(8, 4).batch([Row(ids)], [len(ids)])
    attention = TorchAttention(TokenToKVPool(model.attention_layers, 32, BF16, CPU))
    attention.plan(batch)
    with torch.inference_mode():
        given, positions = map(torch.from_numpy, (batch.input_ids, batch.positions))
        return model.logits(model(given, positions, attention)).float()


@pytest.mark.parametrize(("ranks", "whole"), [(1, False), (2, False), (2, True)])
def test_each_rank_keeps_its_share_of_the_octets(
    ranks: int, whole: bool, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each expert, or whole experts."""
    for rank in range(ranks):
        group = ParallelGroup(rank, ranks)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            model = loaded(checkpoints.packed, FUSED, group, expert_parallel=whole)
        kept = mixtures(model)
        assert f"{len(kept)} of {len(kept)} mixtures stay in mxfp4" in caplog.text
        assert "decoded" not in caplog.text
        plain = mixtures(loaded(checkpoints.decoded, None, group, expert_parallel=whole))
        for mine, theirs in zip(kept, plain, strict=True):
            for name in ("gate_up", "down"):
                values, scales = getattr(mine, name), getattr(mine, f"{name}_scales")
                blocks = values.unflatten(2, (-1, 16))
                numbers = convert_moe_packed_tensors(blocks, scales, dtype=BF16).mT
                assert torch.equal(numbers, getattr(theirs, name))


def test_experts_cut_within_a_scale_are_decoded_and_the_log_says_so(
    checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    model = loaded(checkpoints.packed, FUSED, ParallelGroup(0, 4))
    assert all(moe.gate_up.dtype == BF16 for moe in mixtures(model))
    assert "the weights are mxfp4 and are decoded while they load" in caplog.text


@pytest.mark.usefixtures("products_of_bfloat16")
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs the interpreter")
def test_a_model_in_mxfp4_is_that_of_transformers_and_smaller(
    checkpoints: Checkpoints,
) -> None:
    kept, plain = loaded(checkpoints.packed, FUSED), loaded(checkpoints.decoded, None)
    assert weight_bytes(kept) < 0.5 * weight_bytes(plain)
    ids = prompt(6)
    theirs = AutoModelForCausalLM.from_pretrained(checkpoints.decoded, dtype=torch.float32)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([ids])).logits[0]
    errors = []
    for model in (kept, plain):
        got = logits(model, ids)
        errors.append(float((got - wanted).norm() / wanted.norm()))
    # bfloat16's rounding is what differs, with decoded weights as without.
    assert errors[0] < 0.03 and errors[0] < 1.5 * errors[1] + 0.002, errors


@pytest.mark.parametrize(
    ("options", "dtype", "stays"),
    [
        ({}, BF16, True),
        ({"device": "cpu"}, BF16, False),
        ({"quantization": "none"}, BF16, False),
        ({"max_loras": 1}, BF16, False),
        ({}, torch.float16, False),
    ],
)
def test_mxfp4_stays_on_every_gpu_unless_adapters_change_experts(
    options: dict[str, Any], dtype: torch.dtype, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mxfp4, "missing_for_triton", lambda: None)
    asked = WorkerSettings(model="m", **{"device": "cuda"} | options)
    assert (choose_mxfp4(asked, torch.device(asked.device), dtype) is not None) == stays
    monkeypatch.setattr(mxfp4, "missing_for_triton", lambda: "there is no C compiler")
    assert choose_mxfp4(asked, torch.device(asked.device), dtype) is None
