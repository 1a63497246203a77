"""Weights that stay in fp8: the Triton kernel for activations in the interpreter, products with the
library from the documentation, and whole checkpoints against their decoded weights."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cuda.fp8 import BlackwellBlocks, ByRows, HopperBlocks, choose_fp8, fp8_products
from pando_worker.cuda.fp8_quantize import quantize
from pando_worker.cuda.fused_experts import fused_experts
from pando_worker.models.config import read_config
from pando_worker.models.fp8 import BLOCK, Fp8Matrix, Fp8Products, quantized
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.weight import Fp8Weight, PlainWeight
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.loading.checkpoint import open_checkpoint
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.loading.quantization import Fp8, ScaledTensor
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.parallel import ParallelGroup
from pando_worker.settings import WorkerSettings
from tests.examples import examples
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook
from tests.worker.cuda.kernels.fp8_checkpoints import Form, by_block, by_row, by_tensor, in_fp8
from tests.worker.cuda.kernels.poisoned import Poisoned
from tests.worker.model.checkpoints import Reference
from tests.worker.model.paged import Pages, Row

CPU = torch.device("cpu")
BF16 = torch.bfloat16
HOPPER = fp8_products((9, 0), quantized, ByTheBook())
SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "head_dim": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 512,
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernel")
@settings(max_examples=examples(40), deadline=None)
@given(
    tokens=st.integers(1, 5),
    groups=st.integers(1, 3),
    group=st.sampled_from([16, 128, 1024, 1040, 3072]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    spread=st.sampled_from([0.0, 1e-4, 1.0, 1000.0]),
    seed=st.integers(0, 99),
)
def test_activations_become_what_torch_makes_of_them(
    tokens: int, groups: int, group: int, dtype: torch.dtype, spread: float, seed: int
) -> None:
    """With memory around the numbers, and between their rows, that must not be read."""
    torch.manual_seed(seed)
    inputs = groups * group
    whole = Poisoned(torch.full((tokens, inputs + 8), torch.nan, dtype=dtype))
    x = whole.tensor[:, :inputs]
    x.copy_(torch.randn(tokens, inputs) * spread)
    for got, expected in zip(quantize(x, group), quantized(x, group), strict=True):
        assert got.dtype == expected.dtype
        assert torch.equal(got.float(), expected.float())
    whole.check()


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize(
    ("product", "blocks"),
    [
        (ByRows(quantized), False),
        (HopperBlocks(ByTheBook()), True),
        (BlackwellBlocks(ByTheBook(), quantized), True),
    ],
)
def test_products_are_those_of_decoded_numbers(product: Any, blocks: bool, rows: int) -> None:
    torch.manual_seed(0)
    values = torch.randn(2 * BLOCK, 3 * BLOCK).mul_(100).to(torch.float8_e4m3fn)
    weight = Fp8Matrix(values, torch.rand((2, 3) if blocks else 2 * BLOCK).mul_(0.01))
    x = torch.randn(rows, 3 * BLOCK).to(BF16)
    numbers, scales = quantized(x, BLOCK if blocks else 3 * BLOCK)
    given = numbers.float() * scales.repeat_interleave(x.shape[1] // scales.shape[1], 1)
    expected = given @ weight.decoded().T
    got = product(x, weight)
    assert got.dtype == BF16
    torch.testing.assert_close(got.float(), expected, atol=0.05, rtol=0.01)
    # And near those of numbers that were not rounded to 8 bits.
    exact = x.float() @ weight.decoded().T
    assert float((got.float() - exact).norm() / exact.norm()) < 0.04


@pytest.mark.parametrize(
    ("capability", "library", "rows", "blocks"),
    [
        ((8, 0), ByTheBook(), None, None),
        ((8, 9), ByTheBook(), ByRows, None),
        ((9, 0), ByTheBook(), ByRows, HopperBlocks),
        ((9, 0), None, ByRows, None),
        ((10, 0), ByTheBook(), ByRows, BlackwellBlocks),
    ],
)
def test_each_gpu_has_the_products_that_it_can_compute(
    capability: tuple[int, int], library: Any, rows: Any, blocks: Any
) -> None:
    products = fp8_products(capability, quantized, library)
    assert type(products.rows) is (rows or type(None))
    assert type(products.blocks) is (blocks or type(None))


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({"device": "cpu"}, BF16), ({"quantization": "none"}, BF16), ({}, torch.float16)],
)
def test_weights_are_decoded_on_the_cpu_where_asked_for_and_in_other_dtypes(
    options: dict[str, Any], dtype: torch.dtype
) -> None:
    asked = WorkerSettings(model="m", **{"device": "cuda"} | options)
    assert choose_fp8(asked, torch.device(asked.device), dtype) is None


def loaded(
    path: Path,
    fp8: Fp8Products | None,
    dtype: torch.dtype,
    group: ParallelGroup | None = None,
    *,
    whole: bool = False,
) -> CausalLM:
    """
    Args:
        whole: whether a rank has whole experts
    """
    config = read_config(path)
    model = build_model(config, dtype, CPU, group, fp8=fp8, expert_parallel=whole)
    load_weights(model, path, CPU)
    return cast(CausalLM, model)


def linear(model: CausalLM) -> dict[str, Any]:
    kinds = (ColumnParallelLinear, RowParallelLinear)
    return {n: m.weight for n, m in model.named_modules() if isinstance(m, kinds)}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("fp8") / "base", std=0.05, **SHAPE)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """All of whose experts are used, as rounding would decide between two that are nearly equal."""
    fields: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 256,
    }
    path = tmp_path_factory.mktemp("mixture") / "base"
    return Reference(path, config_type=Qwen3MoeConfig, std=0.05, **SHAPE, **fields)


@pytest.mark.parametrize("form", [by_tensor, by_row, by_block])
@pytest.mark.parametrize("ranks", [1, 2])
def test_matrices_stay_as_the_checkpoint_has_them(
    form: Form, ranks: int, reference: Reference, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = in_fp8(reference.path, tmp_path / "fp8", form)
    for rank in range(ranks):
        group = ParallelGroup(rank, ranks)
        with caplog.at_level(logging.INFO):
            kept = loaded(path, HOPPER, BF16, group)
        assert "8 of 8 linear layers and mixtures stay in fp8" in caplog.text
        decoded = linear(loaded(path, None, torch.float32, group))
        for name, weight in linear(kept).items():
            assert isinstance(weight, Fp8Weight) and isinstance(decoded[name], PlainWeight)
            matrix = Fp8Matrix(weight.values, weight.scales).decoded()
            assert torch.equal(matrix, decoded[name].matrix), name


@pytest.mark.parametrize("form", [by_tensor, by_row, by_block])
def test_a_whole_model_in_fp8_is_near_its_decoded_one_and_smaller(
    form: Form, reference: Reference, tmp_path: Path
) -> None:
    path = in_fp8(reference.path, tmp_path / "fp8", form)
    kept, plain = loaded(path, HOPPER, BF16), loaded(path, None, BF16)
    assert weight_bytes(kept) < 0.6 * weight_bytes(plain)
    got, expected = (logits(model) for model in (kept, plain))
    assert float((got - expected).norm() / expected.norm()) < 0.1


@pytest.mark.parametrize("form", [by_tensor, by_row, by_block])
@pytest.mark.parametrize(("ranks", "whole"), [(1, False), (2, False), (2, True)])
def test_experts_stay_as_the_checkpoint_has_them(
    form: Form,
    ranks: int,
    whole: bool,
    mixture: Reference,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = in_fp8(mixture.path, tmp_path / "fp8", form)
    for rank in range(ranks):
        group = ParallelGroup(rank, ranks)
        with caplog.at_level(logging.INFO):
            products = replace(HOPPER, experts=FusedExperts(fused_experts))
            kept = loaded(path, products, BF16, group, whole=whole)
        assert "6 of 6 linear layers and mixtures stay in fp8" in caplog.text
        assert "decoded" not in caplog.text
        decoded = loaded(path, None, torch.float32, group, whole=whole)
        caplog.clear()
        for mine, plain in zip(mixtures(kept), mixtures(decoded), strict=True):
            assert mine.gate_up.dtype == mine.down.dtype == torch.float8_e4m3fn
            for got, expected in zip(matrices(mine), matrices(plain), strict=True):
                assert torch.equal(got, expected)


@pytest.mark.usefixtures("products_of_bfloat16")
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs the interpreter")
def test_a_mixture_in_fp8_is_near_its_decoded_one(mixture: Reference, tmp_path: Path) -> None:
    path = in_fp8(mixture.path, tmp_path / "fp8", by_block)
    only_experts = Fp8Products(None, None, FusedExperts(fused_experts))
    kept, plain = loaded(path, only_experts, BF16), loaded(path, None, BF16)
    got, expected = (logits(model) for model in (kept, plain))
    assert float((got - expected).norm() / expected.norm()) < 0.03


def mixtures(model: CausalLM) -> list[MixtureOfExperts]:
    return [part for part in model.modules() if isinstance(part, MixtureOfExperts)]


def matrices(moe: MixtureOfExperts) -> list[torch.Tensor]:
    experts = range(len(moe.experts))
    memories = (moe.memory_of_gate, moe.memory_of_up, moe.memory_of_down)
    parts = [memory(expert) for memory in memories for expert in experts]
    return [part.decoded() if isinstance(part, Fp8Matrix) else part for part in parts]


def test_where_a_device_lacks_the_product_weights_are_decoded_and_the_log_says_so(
    reference: Reference, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = in_fp8(reference.path, tmp_path / "fp8", by_block)
    model = loaded(path, fp8_products((8, 9), quantized, ByTheBook()), BF16)
    assert all(isinstance(weight, PlainWeight) for weight in linear(model).values())
    assert "the weights are fp8 and are decoded while they load" in caplog.text


@pytest.mark.parametrize(
    ("shape", "scales", "block", "scaling"),
    [
        ((256, 384), (2, 3), (128, 128), "blocks"),
        ((128, 128), (), (128, 128), "blocks"),  # a block with the tensor's only scale
        ((128, 128), (1,), None, "blocks"),
        ((256, 384), (256, 1), None, "rows"),
        ((256, 384), (1,), None, "rows"),
        ((256, 128), (4, 1), (64, 128), None),  # as wide as the matrix, and several rows high
        ((256, 384), (4, 2), (64, 192), None),
    ],
)
def test_scales_are_kept_where_a_product_has_their_form(
    tmp_path: Path,
    shape: tuple[int, int],
    scales: tuple[int, ...],
    block: tuple[int, int] | None,
    scaling: str | None,
) -> None:
    torch.manual_seed(0)
    values = torch.randn(shape).to(torch.float8_e4m3fn)
    stored = {"a.weight": values, "a.weight_scale": torch.rand(scales) + 0.5}
    save_file(stored, tmp_path / "model.safetensors")
    whole = tuple(slice(0, size) for size in shape)
    with open_checkpoint(tmp_path) as tensors:
        tensor = Fp8(block).decoded(tensors)["a.weight"]
        assert isinstance(tensor, ScaledTensor)
        assert tensor.scaling == scaling
        if scaling:
            assert torch.equal(tensor.kept(whole, CPU).decoded(), tensor.read(whole, CPU))


def test_blocks_that_ranks_cut_are_decoded(reference: Reference, tmp_path: Path) -> None:
    """Of four ranks each has 64 rows of queries; the MLP's parts are whole blocks."""
    path = in_fp8(reference.path, tmp_path / "fp8", by_block)
    weights = linear(loaded(path, HOPPER, BF16, ParallelGroup(3, 4)))
    kinds = {name.rpartition(".")[2]: type(weight) for name, weight in weights.items()}
    assert kinds["qkv_proj"] is PlainWeight and kinds["gate_up_proj"] is Fp8Weight


def logits(model: CausalLM) -> torch.Tensor:
    """After each of some tokens, without a cache before them."""
    pages = Pages(8, 4)
    batch = pages.batch([Row(list(range(3, 23)))], [20])
    attention = TorchAttention(TokenToKVPool(model.attention_layers, 32, BF16, CPU))
    attention.plan(batch)
    with torch.inference_mode():
        ids, positions = map(torch.from_numpy, (batch.input_ids, batch.positions))
        return model.logits(model(ids, positions, attention)).float()
