"""Weights as integers: each scheme's numbers, and models' results with them."""

import logging
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pando_worker.cpu.library import load_kernels
from pando_worker.models.config import read_config
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.grouped import Grouping, Groups, Integers, pack, shapes, unpack
from pando_worker.models.layers.weight import GroupedWeight
from pando_worker.models.loading.building import build_model, weight_bytes
from pando_worker.models.loading.checkpoint import open_checkpoint
from pando_worker.models.loading.gguf.header import TensorPlace
from pando_worker.models.loading.gguf.tensors import GgufTensor
from pando_worker.models.loading.gguf.types import TYPES
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.schemes.blocks import KINDS
from pando_worker.models.loading.schemes.int4 import GROUPING as NIBBLES
from pando_worker.models.loading.schemes.int4 import Int4, to_nibbles
from pando_worker.models.loading.schemes.int8 import GROUPING as BYTES
from pando_worker.models.loading.schemes.int8 import Int8, to_bytes
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.loading.schemes.stored import AsStored
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.cpu.quantization import choose_scheme
from pando_worker.settings import WorkerSettings
from tests.examples import examples
from tests.worker.cpu.test_grouped import rounded
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.families import FAMILIES
from tests.worker.model.gguf_files import write_gguf
from tests.worker.model.paged import CPU, BareModel, Paged, Row

PROMPTS = [prompt(length, seed=length) for length in (1, 9, 40)]
LARGE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 96, "std": 0.1}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate folder for converted GGUF files, with the kernels that are already built."""
    load_kernels()
    folder = tmp_path / "cache" / "pando"
    folder.mkdir(parents=True)
    built = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pando"
    for library in built.glob("kernels-*.so"):
        (folder / library.name).symlink_to(library)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))


def laid_out(grouping: Grouping, integers: Integers) -> Groups:
    rows, columns = integers.values.shape
    values, numbers = shapes(grouping, rows, columns)
    made = Groups(
        grouping,
        rows,
        columns,
        torch.zeros(values, dtype=torch.uint8),
        torch.zeros(numbers, dtype=grouping.numbers),
        torch.zeros(numbers, dtype=grouping.numbers) if grouping.minimums else None,
    )
    made.put(0, integers)
    return made


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 100),
    bits=st.sampled_from([4, 8]),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=examples(60))
def test_integers_come_out_of_their_layout_as_they_went_in(
    rows: int, columns: int, bits: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 1 << bits, (rows, columns), dtype=torch.uint8, generator=generator)
    assert torch.equal(unpack(pack(values, bits), bits)[:rows, :columns], values)


@given(kind=st.sampled_from(sorted(KINDS)), rows=st.integers(1, 20), seed=st.integers(0, 1 << 30))
@settings(max_examples=examples(120))
def test_blocks_of_each_type_keep_every_number(kind: str, rows: int, seed: int) -> None:
    """To the last bit, for any bytes with finite scales."""
    known = KINDS[kind]
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (rows, 2, known.size), dtype=np.uint8)
    halves = data[..., : known.size // 2 * 2].reshape(rows, -1).view(np.float16)
    halves[~np.isfinite(halves)] = 1.0
    data[..., : known.size // 2 * 2] = halves.view(np.uint8).reshape(rows, 2, -1)
    data = data.reshape(rows, -1)
    expected = torch.from_numpy(np.asarray(dequantize(data, Kind[kind]), np.float32))
    groups = laid_out(known.grouping, known.integers(data))
    found = groups.decoded()
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))


def test_every_quantized_type_that_is_read_is_kept() -> None:
    plain = {"F32", "F16", "BF16"}
    assert {kind.name for kind in TYPES.values()} - plain == set(KINDS)
    for name, kind in KINDS.items():
        assert gguf.GGML_QUANT_SIZES[Kind[name]][1] == kind.size


@given(rows=st.integers(1, 20), columns=st.integers(1, 100), seed=st.integers(0, 1 << 30))
@settings(max_examples=examples(60))
def test_int8_is_within_half_a_step_of_each_number(rows: int, columns: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, columns, generator=generator)
    numbers[0] = 0.0
    found = laid_out(BYTES, to_bytes(numbers)).decoded()
    padded = torch.nn.functional.pad(numbers, (0, -columns % 32)).view(rows, -1, 32)
    steps = padded.abs().amax(dim=2) / 127
    allowed = steps.repeat_interleave(32, dim=1)[:, :columns] * 0.57  # scales are rounded, too
    assert torch.all((found - numbers).abs() <= allowed + 1e-7)


@given(rows=st.integers(1, 20), columns=st.integers(1, 100), seed=st.integers(0, 1 << 30))
@settings(max_examples=examples(60))
def test_int4_is_no_worse_than_q4_1(rows: int, columns: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, columns, generator=generator)
    numbers[0] = 0.5
    found = laid_out(NIBBLES, to_nibbles(numbers)).decoded()
    whole = columns // 32 * 32
    if whole:
        blocks = gguf.quants.quantize(numbers[:, :whole].numpy(), Kind.Q4_1)
        theirs = torch.from_numpy(np.asarray(dequantize(blocks, Kind.Q4_1)))
        errors = [(x - numbers[:, :whole]).square().sum() for x in (found[:, :whole], theirs)]
        assert errors[0] <= errors[1] * 1.001 + 1e-9
    steps = (numbers.amax() - numbers.amin()) / 15
    assert torch.all((found - numbers).abs() <= steps * 2.1 + 1e-3)


@pytest.mark.parametrize("scheme", [Int8(), Int4()], ids=lambda scheme: scheme.name)
def test_a_models_bytes_are_planned_before_they_are_read(tmp_path: Path, scheme: Scheme) -> None:
    made = BareModel(Reference(tmp_path, **LARGE).path, scheme=scheme)
    assert made.planned_bytes == weight_bytes(made.model)
    plain = build_model(read_config(tmp_path), torch.float32, CPU)
    assert made.planned_bytes < weight_bytes(plain) / (3 if scheme.name == "int8" else 5)


class WrittenOut(TorchOps):
    """The kernels' arithmetic in torch: inputs rounded to bytes, weights decoded."""

    def grouped_linear(self, x: Tensor, weight: Groups, bias: Tensor | None = None) -> Tensor:
        return self.linear(rounded(x).float(), weight.decoded(), bias)


@pytest.mark.parametrize(("quantization", "mean"), [("int8", 0.06), ("int4", 0.4)])
@pytest.mark.parametrize("name", ["llama, biases, tied", "phi3", "gemma2", "qwen3"])
def test_logits_are_near_those_of_the_float32_model(
    tmp_path: Path, name: str, quantization: str, mean: float
) -> None:
    """Relative to the logits' variation; and near those of the same arithmetic in torch, which
    sometimes rounds a number between two bytes the other way."""
    case = FAMILIES[name]
    reference = Reference(
        tmp_path, config_type=case.config_type, at_least=case.at_least, **case.fields
    )
    paged = Paged(reference.path, quantization=quantization, context_length=case.context_length)
    found = paged.logits([Row(list(tokens)) for tokens in PROMPTS])
    expected = torch.stack([reference.logits(tokens) for tokens in PROMPTS])
    error = (found - expected).abs().mean() / expected.std()
    assert 0 < error < mean
    scheme = Int8() if quantization == "int8" else Int4()
    same = bare_logits(reference.path, scheme, WrittenOut(), case.context_length)
    assert (found - same).abs().mean() / expected.std() < 0.1 * error


def bare_logits(path: Path, scheme: Scheme, ops: Ops, context_length: int | None) -> Tensor:
    bare = BareModel(path, scheme=scheme, ops=ops, context_length=context_length)
    logits = bare.run([Row(list(tokens)) for tokens in PROMPTS])
    return logits[np.cumsum([len(tokens) for tokens in PROMPTS]) - 1]


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0])
def test_a_gguf_models_weights_stay_as_they_are(tmp_path: Path, kind: Kind) -> None:
    """The model with the same numbers in float32 computes the same, up to the rounding of
    inputs."""
    model = Reference(tmp_path / "checkpoint", intermediate_size=64)
    file = write_gguf(model.path, tmp_path / "model.gguf", kind=kind)
    kept, decoded = (Paged(file, quantization=how) for how in ("auto", "none"))
    rows = [Row(list(tokens)) for tokens in PROMPTS]
    found = kept.logits(rows)
    expected = decoded.logits([Row(list(tokens)) for tokens in PROMPTS])
    assert 0 < (found - expected).abs().mean() < 0.04 * expected.std()
    same = bare_logits(resolve_model(str(file)), AsStored(), WrittenOut(), None)
    assert (found - same).abs().mean() < 0.1 * (found - expected).abs().mean()
    grouped = [m for m in kept.runner._model.modules() if isinstance(m, GroupedWeight)]
    assert len(grouped) == 2 * 4 + 2


def test_projections_of_several_types_are_computed_side_by_side(tmp_path: Path) -> None:
    """As in llama.cpp's mixed types, where values are finer than queries and keys."""
    model = Reference(tmp_path / "checkpoint", **LARGE)
    kinds = {"attn_v": Kind.Q8_0, "ffn_up": Kind.F32}
    file = write_gguf(model.path, tmp_path / "model.gguf", kind=Kind.Q4_0, others=kinds)
    kept, decoded = (Paged(file, quantization=how) for how in ("auto", "none"))
    found, expected = (
        paged.logits([Row(list(tokens)) for tokens in PROMPTS]) for paged in (kept, decoded)
    )
    assert 0 < (found - expected).abs().mean() < 0.02 * expected.std()


def test_greedy_tokens_do_not_depend_on_batches_or_recorded_steps(tmp_path: Path) -> None:
    model = Reference(tmp_path, **LARGE)
    paged = Paged(model.path, quantization="int8")
    prompts = [prompt(9 + 5 * i, seed=i) for i in range(6)]

    def generated(count: int) -> list[list[int]]:
        rows = [Row(list(tokens)) for tokens in prompts[:count]]
        for _ in range(12):
            paged.step(rows, 1 << 30)
        return [row.tokens[-12:] for row in rows]

    together = generated(6)
    assert paged.runner.graphs is not None
    for count in (1, 3):
        assert generated(count) == together[:count]


@pytest.mark.parametrize("scheme", [Int8(), Int4()], ids=lambda scheme: scheme.name)
def test_ranks_hold_their_share_of_the_integers(tmp_path: Path, scheme: Scheme) -> None:
    path = Reference(tmp_path, **LARGE | {"vocab_size": 96}).path
    whole = BareModel(path, scheme=scheme)
    shares = [BareModel(path, scheme=scheme, group=ParallelGroup(rank, 2)) for rank in range(2)]
    name = "model.layers.1.mlp.down_proj"
    layers: list[Any] = [part.model.get_submodule(name) for part in (whole, *shares)]
    decoded = [layer.weight.groups.decoded() for layer in layers]
    assert [tuple(part.shape) for part in decoded] == [(64, 96), (64, 48), (64, 48)]
    with open_checkpoint(path) as tensors:
        truth = tensors[f"{name}.weight"].read((), CPU)
    error = (torch.cat(decoded[1:], dim=1) - truth).abs().mean()
    assert error < 1.05 * (decoded[0] - truth).abs().mean()


def test_a_ranks_part_of_a_stored_type_begins_with_a_group() -> None:
    place = TensorPlace((32, 96), TYPES[2], 0)
    tensor = GgufTensor(Path("model.gguf"), place, place.shape)
    rows = slice(0, 32)
    assert AsStored().grouping(tensor, (rows, slice(32, 64)), table=False)
    with pytest.raises(UnsupportedModel, match=r"Q4_0 weights in groups of 32, .* 0 to 48 cut"):
        AsStored().grouping(tensor, (rows, slice(0, 48)), table=False)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"dtype": "bfloat16"}, r"'int8', but dtype is torch\.bfloat16"),
        ({"cpu_kernels": "off"}, "'int8', but cpu_kernels is 'off'"),
        ({"load_format": "dummy"}, "'int8', but load_format is 'dummy'"),
        ({"model_impl": "transformers"}, "runs through transformers, which quantization int8"),
    ],
)
def test_what_integers_are_not_for_is_refused_by_name(
    tmp_path: Path, settings_: dict[str, Any], message: str
) -> None:
    Reference(tmp_path)
    with pytest.raises(UnsupportedModel, match=message):
        Paged(tmp_path, quantization="int8", **settings_)


def test_experts_are_refused_and_stay_floating_point_in_a_gguf(tmp_path: Path) -> None:
    case = FAMILIES["mixtral"]
    model = Reference(tmp_path / "checkpoint", config_type=case.config_type, **case.fields)
    with pytest.raises(UnsupportedModel, match="int4 is not for models with experts"):
        Paged(model.path, quantization="int4")
    file = write_gguf(model.path, tmp_path / "model.gguf", kind=Kind.Q8_0)
    kept, decoded = (Paged(file, quantization=how) for how in ("auto", "none"))
    found, expected = (paged.logits([Row(list(PROMPTS[1]))]) for paged in (kept, decoded))
    # Between two experts that are nearly equal, rounding may choose the other one.
    assert (found - expected).abs().mean() < 0.2 * expected.std()


def test_without_kernels_a_gguf_is_decoded_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Reference(tmp_path / "checkpoint", intermediate_size=64)
    file = write_gguf(model.path, tmp_path / "model.gguf", kind=Kind.Q8_0)
    with caplog.at_level(logging.INFO, "pando.worker.cpu"):
        paged = Paged(file, quantization="auto", cpu_kernels="off")
    assert "are decoded to torch.float32: cpu_kernels is 'off'" in caplog.text
    assert not [m for m in paged.runner._model.modules() if isinstance(m, GroupedWeight)]
    with open_checkpoint(resolve_model(str(file))) as tensors:
        name = "model.layers.0.mlp.down_proj"
        layer: Any = paged.runner._model.get_submodule(name)
        assert torch.equal(layer.weight.matrix, tensors[f"{name}.weight"].read((), CPU))


def test_a_gguf_warns_where_no_kernels_can_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    options = WorkerSettings(model="", quantization="auto")
    assert choose_scheme(options, torch.float32, is_gguf=False) is None
    assert not caplog.records
    assert choose_scheme(options, torch.float32, is_gguf=True) is None
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "no C++ compiler" in record.message
    assert "Install a C++ compiler" in record.message
    silenced = WorkerSettings(model="", quantization="none")
    assert choose_scheme(silenced, torch.float32, is_gguf=True) is None
    assert len(caplog.records) == 1
