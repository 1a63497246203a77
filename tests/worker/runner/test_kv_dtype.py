"""Keys and values in fewer bits than the model's: their cost and savings."""

import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import DType, KVCacheDType, WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import Pages, Row

# Half a unit in the last place, relative to the number: 3 and 7 bits of mantissa.
ROUNDING = {torch.float8_e4m3fn: 2**-4, torch.bfloat16: 2**-8}


def runner(reference: Reference, kv: KVCacheDType, **settings: object) -> TorchModelRunner:
    return TorchModelRunner(
        WorkerSettings.model_validate(
            {"model": str(reference.path), "threads": 1, "kv_cache_dtype": kv, "page_size": 4}
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


def test_the_same_memory_holds_as_many_times_more_tokens(reference: Reference) -> None:
    capacities = [
        runner(reference, kv, memory_gib=0.001, max_total_tokens=None).capacity_tokens
        for kv in (KVCacheDType.AUTO, KVCacheDType.BFLOAT16, KVCacheDType.FP8_E4M3)
    ]
    assert capacities[1] == pytest.approx(2 * capacities[0], rel=0.01)
    assert capacities[2] == pytest.approx(4 * capacities[0], rel=0.01)
