"""Keys and values in fewer bits than the model's: their cost and savings."""

import json
import logging
from pathlib import Path
from shutil import copytree

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, KVScales
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.runner.kv_scales import scale_for
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from pando_worker.settings.compute import DType
from pando_worker.settings.memory import KVCacheDType
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import Pages, Row

# Half a unit in the last place, relative to the number: 3 and 7 bits of mantissa.
ROUNDING = {torch.float8_e4m3fn: 2**-4, torch.bfloat16: 2**-8}


def runner(model: Reference | Path, kv: KVCacheDType, **settings: object) -> TorchModelRunner:
    path = model if isinstance(model, Path) else model.path
    return TorchModelRunner(
        WorkerSettings.model_validate(
            {"model": str(path), "threads": 1, "kv_cache_dtype": kv, "page_size": 4}
            | {"max_total_tokens": 256}
            | settings
        )
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("llama"))


def logits(runner: TorchModelRunner, tokens: list[int], chunk: int) -> Tensor:
    """Logits after the last of `tokens`, run in chunks, so that most keys are read from the
    pool."""
    row, pages = Row(tokens), Pages(runner.capacity_tokens // 4, 4)
    while row.pending > chunk:
        runner.launch(pages.batch([row], [chunk]))
    return runner.logits(pages.batch([row], [row.pending]))[0]


@pytest.mark.parametrize(
    ("kv", "bound"), [(KVCacheDType.BFLOAT16, 0.01), (KVCacheDType.FP8_E4M3, 0.15)]
)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
def test_logits_stay_close_and_are_the_same_in_any_chunks(
    reference: Reference, kv: KVCacheDType, bound: float, dtype: DType
) -> None:
    tokens = prompt(50)
    expected = logits(runner(reference, KVCacheDType.AUTO, dtype=dtype), tokens, 100)
    small = runner(reference, kv, dtype=dtype)
    found = logits(small, tokens, 100)
    error = float((found - expected).norm() / expected.norm())
    assert 0 < error < bound
    for chunk in (1, 7):  # the cache gives the same result as the whole prompt
        again = logits(small, tokens, chunk)
        assert (again - found).norm() < (1e-4 if dtype is DType.FLOAT32 else 1e-2) * found.norm()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_a_pool_gives_back_what_was_stored_to_its_precision(dtype: torch.dtype) -> None:
    layer = AttentionLayer(index=0, heads=2, kv_heads=2, head_dim=8, v_head_dim=4, scale=1.0)
    pool = TokenToKVPool([layer], 20, dtype, torch.device("cpu"))
    k, v = torch.randn(3, 2, 8).exp(), -torch.randn(3, 2, 4).exp()
    slots = torch.tensor([17, 2, 9])
    pool.store(0, slots, k, v)
    found_k, found_v = torch.empty(3, 2, 8), torch.empty(3, 2, 4)
    pool.load(0, slots, found_k, found_v)
    for found, stored in ((found_k, k), (found_v, v)):
        assert ((found - stored).abs() <= ROUNDING[dtype] * stored.abs() + 2**-10).all()
        assert not torch.equal(found, stored)


def test_fp8_keeps_what_is_out_of_its_range_at_its_largest_number() -> None:
    layer = AttentionLayer(index=0, heads=1, kv_heads=1, head_dim=4, v_head_dim=1, scale=1.0)
    pool = TokenToKVPool([layer], 1, torch.float8_e4m3fn, torch.device("cpu"))
    k = torch.tensor([[[1e6, -470.0, 448.0, torch.nan]]])
    found = torch.empty_like(k)
    pool.store(0, torch.tensor([0]), k, torch.zeros(1, 1, 1))
    pool.load(0, torch.tensor([0]), found, torch.empty(1, 1, 1))
    assert found[0, 0, :3].tolist() == [448.0, -448.0, 448.0]
    assert found[0, 0, 3].isnan()


def rewritten(source: Path, target: Path, **changes: Tensor) -> Path:
    """The checkpoint `source` with some tensors added or replaced; dots in names are `__`."""
    copytree(source, target)
    tensors = load_file(source / "model.safetensors")
    tensors |= {name.replace("__", "."): tensor for name, tensor in changes.items()}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8"}
    (target / "config.json").write_text(json.dumps(config))
    return target


def with_factor(source: Path, target: Path, factor: float) -> Path:
    """A model that computes the same with keys `factor` times as large."""
    tensors = load_file(source / "model.safetensors")
    changes = {}
    for layer in (0, 1):
        for side, by in (("q", 1 / factor), ("k", factor)):
            name = f"model.layers.{layer}.self_attn.{side}_proj.weight"
            changes[name.replace(".", "__")] = tensors[name] * by
    return rewritten(source, target, **changes)


@pytest.mark.parametrize("factor", [2.0**-14, 2.0**10])
def test_tiny_and_huge_keys_keep_their_bits_in_fp8(
    reference: Reference, tmp_path: Path, factor: float
) -> None:
    """Unscaled, the first would become 0 and the others be clamped."""
    tokens = prompt(50)
    expected = logits(runner(reference, KVCacheDType.AUTO), tokens, 100)
    plain = logits(runner(reference, KVCacheDType.FP8_E4M3), tokens, 7)
    served = with_factor(reference.path, tmp_path / "factor", factor)
    scaled = runner(served, KVCacheDType.FP8_E4M3)
    found = logits(scaled, tokens, 7)
    assert (found - expected).norm() < 0.15 * expected.norm()
    torch.testing.assert_close(found, plain, rtol=1e-3, atol=1e-3)
    scaled.kv_pool.scales = [KVScales()] * 2
    assert (logits(scaled, tokens, 7) - expected).norm() > 0.2 * expected.norm()


@pytest.mark.parametrize("form", ["k_scale", "k_proj.k_scale", "attn.k_scale"])
def test_scales_of_the_checkpoint_are_used_and_other_layers_get_their_own(
    reference: Reference, tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    k_name = f"model.layers.1.self_attn.{form}".replace(".", "__")
    v_name = k_name.replace("k_scale", "v_scale").replace("k_proj", "v_proj")
    scales = {k_name: torch.tensor(0.37), v_name: torch.tensor([0.021])}
    served = rewritten(reference.path, tmp_path / "scaled", **scales)
    with caplog.at_level(logging.INFO):
        small = runner(served, KVCacheDType.FP8_E4M3)
    assert "1 layers have the checkpoint's scales, 1 those of" in caplog.text
    assert small.kv_pool.scales[1] == pytest.approx((0.37, 0.021))
    own = small.kv_pool.scales[0]
    assert own != KVScales() and all(2.0 ** round(torch.tensor(x).log2().item()) == x for x in own)
    tokens = prompt(50)
    expected = logits(runner(reference, KVCacheDType.AUTO), tokens, 100)
    found = logits(small, tokens, 7)
    assert (found - expected).norm() < 0.15 * expected.norm()
    assert not any(
        scale != KVScales() for scale in runner(served, KVCacheDType.AUTO).kv_pool.scales
    )


def test_one_scale_may_be_for_keys_and_values(reference: Reference, tmp_path: Path) -> None:
    names = [f"model__layers__{layer}__self_attn__kv_scale" for layer in (0, 1)]
    served = rewritten(
        reference.path, tmp_path / "one", **{name: torch.tensor(0.25) for name in names}
    )
    assert runner(served, KVCacheDType.FP8_E4M3).kv_pool.scales == [KVScales(0.25, 0.25)] * 2


@pytest.mark.parametrize("value", [0.0, -1.0, torch.nan, torch.inf])
def test_a_scale_that_is_no_positive_number_is_refused(
    reference: Reference, tmp_path: Path, value: float
) -> None:
    name = "model__layers__0__self_attn__v_scale"
    served = rewritten(reference.path, tmp_path / "bad", **{name: torch.tensor(value)})
    with pytest.raises(BrokenCheckpoint, match=r"self_attn\.v_scale is .*, no positive number"):
        runner(served, KVCacheDType.FP8_E4M3)


@pytest.mark.parametrize(
    ("largest", "scale"), [(56.0, 1.0), (57.0, 2.0), (28.0, 0.5), (0.0, 1.0), (torch.inf, 1.0)]
)
def test_calibrated_scales_leave_room_for_eight_times_the_largest(
    largest: float, scale: float
) -> None:
    assert scale_for(largest) == scale


def test_the_same_memory_holds_as_many_times_more_tokens(reference: Reference) -> None:
    capacities = [
        runner(reference, kv, memory_gib=0.001, max_total_tokens=None).capacity_tokens
        for kv in (KVCacheDType.AUTO, KVCacheDType.BFLOAT16, KVCacheDType.FP8_E4M3)
    ]
    assert capacities[1] == pytest.approx(2 * capacities[0], rel=0.01)
    assert capacities[2] == pytest.approx(4 * capacities[0], rel=0.01)
