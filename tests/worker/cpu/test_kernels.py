"""Each kernel, compared with torch or with attention written out in float64."""

import numpy as np
import pytest
import torch

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import SamplingBatch
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.cpu.sampling import best_by, forbid_by, totals_by
from pando_worker.models.ops import TorchOps
from pando_worker.runner.sampling.edits import apply_mask
from pando_worker.runner.sampling.ops import SamplingOps
from pando_worker.runner.sampling.sampler import sample
from pando_worker.runner.trial import trial_batch
from tests.worker.model.test_attention import (
    BATCHES,
    IMAGES,
    assert_equals_brute_force,
    case,
    case_with_images,
)

PLAIN = TorchOps()


@pytest.fixture
def ops(kernels: Kernels) -> CpuOps:
    torch.manual_seed(0)
    return CpuOps(kernels, threads=1, linear_rows={})


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("shape", [(1, 1), (13, 5), (96, 64), (97, 2049), (512, 256), (7, 5000)])
def test_linear_equals_torch(ops: CpuOps, rows: int, shape: tuple[int, int]) -> None:
    width, inner = shape
    x, weight, bias = torch.randn(rows, inner), torch.randn(width, inner), torch.randn(width)
    for b in (None, bias):
        expected = PLAIN.linear(x.double(), weight.double(), None if b is None else b.double())
        torch.testing.assert_close(
            ops.product(x, weight, b).double(), expected, atol=2e-4, rtol=1e-5
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1), (13, 5), (97, 2049), (512, 256)])
def test_weights_of_16_bits_give_to_the_last_bit_what_float32_gives(
    ops: CpuOps, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    width, inner = shape
    weight, bias = torch.randn(width, inner).to(dtype), torch.randn(width)
    for rows in (1, 2, 8, 33):
        x = torch.randn(rows, inner)
        assert torch.equal(ops.product(x, weight, bias), ops.product(x, weight.float(), bias))
        torch.testing.assert_close(
            ops.linear(x, weight, bias), PLAIN.linear(x, weight.float(), bias), atol=2e-4, rtol=1e-5
        )


def test_weights_of_16_bits_run_in_the_kernel_whatever_a_race_says(kernels: Kernels) -> None:
    raced = CpuOps(kernels, threads=1, linear_rows={(96, 64): 1}, narrow_rows=4)
    x, weight = torch.randn(5, 64), torch.randn(96, 64).half()
    assert torch.equal(raced.linear(x[:4], weight), raced.product(x[:4], weight))
    assert torch.equal(raced.linear(x, weight), PLAIN.linear(x, weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_16_bits_is_widened_to_itself(ops: CpuOps, dtype: torch.dtype) -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    rows = ops.embedding(torch.arange(256), bits.view(256, 256))
    assert torch.equal(rows.nan_to_num(1.5), bits.float().view(256, 256).nan_to_num(1.5))
    finite = bits[bits.isfinite()]
    products = ops.product(torch.ones(3, 1), finite[:, None])
    assert torch.equal(products, finite.float().expand(3, -1))


def test_a_widened_product_is_the_same_in_parts(ops: CpuOps) -> None:
    x, weight, bias = torch.randn(70, 1024), torch.randn(2500, 1024).half(), torch.randn(2500)
    expected = PLAIN.linear(x, weight.float(), bias)
    torch.testing.assert_close(PLAIN.linear(x, weight, bias), expected, atol=2e-4, rtol=1e-5)


def test_a_rows_result_does_not_depend_on_the_rows_beside_it(ops: CpuOps) -> None:
    """To the last bit, so a request's tokens do not depend on its batch."""
    x, weight = torch.randn(40, 300), torch.randn(130, 300)
    whole = ops.product(x, weight)
    for rows in (1, 2, 3, 5, 16, 39):
        assert torch.equal(ops.product(x[:rows].contiguous(), weight), whole[:rows])


def test_threads_change_no_bit(ops: CpuOps, kernels: Kernels) -> None:
    more = CpuOps(kernels, threads=3, linear_rows={})
    x, weight = torch.randn(5, 300), torch.randn(1001, 300)
    assert torch.equal(ops.product(x, weight), more.product(x, weight))
    gate_up = torch.randn(70, 2000)
    assert torch.equal(ops.gated(gate_up), more.gated(gate_up))


@pytest.mark.parametrize("shape", [(1, 8), (3, 4, 32), (5, 100), (2, 7)])
def test_rms_norm_equals_torch(ops: CpuOps, shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.randn(shape[-1])
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-5), PLAIN.rms_norm(x, weight, 1e-5))
    apart = torch.randn(*shape[:-1], shape[-1] + 3)[..., : shape[-1]]
    torch.testing.assert_close(
        ops.rms_norm(apart, weight, 1e-5), PLAIN.rms_norm(apart, weight, 1e-5)
    )


@pytest.mark.parametrize(("rows", "width"), [(1, 8), (3, 13), (64, 688)])
def test_gated_silu_equals_torch_at_any_size_of_the_gate(
    ops: CpuOps, rows: int, width: int
) -> None:
    gate_up = torch.randn(rows, 2 * width) * 30
    gate_up[0, 0], gate_up[0, 1] = 1000.0, -1000.0
    torch.testing.assert_close(
        ops.gated(gate_up), PLAIN.gated(gate_up.clone()), atol=1e-6, rtol=2e-6
    )


@pytest.mark.parametrize(("rows", "width"), [(1, 8), (3, 13), (64, 688)])
def test_gated_gelu_equals_torch_at_any_size_of_the_gate(
    ops: CpuOps, rows: int, width: int
) -> None:
    gate_up = torch.randn(rows, 2 * width) * 5
    gate_up[0, 0], gate_up[0, 1] = 1000.0, -1000.0
    torch.testing.assert_close(
        ops.gated(gate_up, gelu=True), PLAIN.gated(gate_up.clone(), gelu=True), atol=1e-5, rtol=1e-5
    )


def test_norms_with_an_offset_equal_torch(ops: CpuOps) -> None:
    x, added, weight = torch.randn(5, 100), torch.randn(5, 100), torch.randn(100)
    torch.testing.assert_close(
        ops.rms_norm(x, weight, 1e-5, offset=True), PLAIN.rms_norm(x, weight, 1e-5, offset=True)
    )
    expected = PLAIN.add_rms_norm(x, added, weight, 1e-5, offset=True)
    found = ops.add_rms_norm(x.clone(), added.clone(), weight, 1e-5, offset=True)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("shape", [(1, 8), (3, 13), (70, 512), (2, 7)])
def test_layer_norm_equals_torch(ops: CpuOps, shape: tuple[int, ...]) -> None:
    """Also of rows whose mean is large beside their spread."""
    x = torch.randn(shape) + 100 * torch.randn(shape[0], 1)
    weight, bias = torch.randn(shape[-1]), torch.randn(shape[-1])
    for b in (bias, None):
        doubled = None if b is None else b.double()
        expected = PLAIN.layer_norm(x.double(), weight.double(), doubled, 1e-5)
        found = ops.layer_norm(x, weight, b, 1e-5)
        torch.testing.assert_close(found.double(), expected, atol=5e-4, rtol=1e-5)


def test_gelu_equals_torch_at_any_size(ops: CpuOps) -> None:
    x = torch.cat((torch.linspace(-20, 20, 10_007), torch.tensor([0.0, 1e4, -1e4, 1e-30])))
    expected = PLAIN.gelu(x.double())
    torch.testing.assert_close(ops.gelu(x).double(), expected, atol=3e-7, rtol=2e-6)
    assert ops.gelu(torch.tensor([float("nan")])).isnan().all()


def test_sums_equal_torch(ops: CpuOps) -> None:
    x, y = torch.randn(5, 7), torch.randn(7, 5).T
    assert torch.equal(ops.add(x, y), x + y)


def test_embedding_equals_torch_and_what_is_no_token_gives_nan(ops: CpuOps) -> None:
    table, ids = torch.randn(10, 7), torch.tensor([3, 0, 9, 3])
    assert torch.equal(ops.embedding(ids, table), PLAIN.embedding(ids, table))
    out = ops.embedding(torch.tensor([1, 10, -1, 2**40]), table)
    assert torch.equal(out[0], table[1])
    assert out[1:].isnan().all()


def test_angles_equal_torch(ops: CpuOps) -> None:
    positions, frequencies = torch.tensor([0, 1, 77, 40_000]), torch.rand(8)
    expected = PLAIN.angles(positions, frequencies, 0.7, torch.float32)
    for got, want in zip(
        ops.angles(positions, frequencies, 0.7, torch.float32), expected, strict=True
    ):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("width", [1, 7, 8, 100, 4099])
def test_the_best_of_each_row_is_its_first_largest(kernels: Kernels, width: int) -> None:
    best = best_by(kernels, threads=2)
    rows = torch.randn(9, width)
    rows[1] = rows[2] = 0.5  # all equal
    rows[2, width // 2] = torch.inf
    rows[3] = -torch.inf
    rows[4, -1], rows[5, 0] = torch.nan, torch.nan
    values, tokens = best(rows)
    assert values[4:6].isnan().all()
    rows, values, tokens = (t[[0, 1, 2, 3, 6, 7, 8]] for t in (rows, values, tokens))
    assert torch.equal(values, rows.max(dim=1).values)
    assert tokens.tolist() == [row.index(max(row)) for row in rows.tolist()]


@pytest.mark.parametrize("width", [1, 7, 640, 51_865])
def test_sampling_with_it_gives_the_same_tokens(kernels: Kernels, width: int) -> None:
    """Greedy rows and drawn ones, whether or not the vocabulary fills its last block."""
    logits, rows = torch.randn(9, width), np.arange(9)
    logits[4] = torch.nan
    params = SamplingBatch(
        temperature=(rows % 3).astype(np.float32),
        top_k=rows % 2 * 5,
        top_p=np.where(rows % 2, 1.0, 0.8).astype(np.float32),
        min_p=np.zeros(9, np.float32),
        seed=rows,
        step=rows,
    )
    ops = SamplingOps(best=best_by(kernels, threads=2))
    found = sample(logits.clone(), params, ops)
    assert torch.equal(found, sample(logits.clone(), params))
    assert found[4] == -1
    assert ((found >= -1) & (found < width)).all()


@pytest.mark.parametrize("width", [1, 7, 31, 33, 640, 51_865])
def test_the_sum_of_each_rows_probabilities_is_torchs(kernels: Kernels, width: int) -> None:
    rows = torch.randn(9, width + 3)[:, :width] * 20
    rows[1], rows[2], rows[3, 0], rows[4, -1] = 0.25, -torch.inf, torch.inf, torch.nan
    rows[5, ::2] = -torch.inf
    expected = rows.double().logsumexp(dim=-1).float()
    found = totals_by(kernels, threads=2)(rows)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("width", [1, 7, 31, 32, 33, 640, 51_865])
def test_a_mask_forbids_what_it_forbids_with_torch(kernels: Kernels, width: int) -> None:
    """NaN and infinities included; logits behind the vocabulary stay."""
    numbers = np.random.default_rng(width)
    words = numbers.integers(-(2**31), 2**31, (9, -(-width // 32))).astype(np.int32)
    words[1], words[2], words[3, ::2] = -1, 0, -1
    memory = torch.randn(9, width + 3)
    memory[4:7, 0], memory[:, -3:] = torch.tensor([torch.nan, torch.inf, -torch.inf]), 1.0
    rows = memory[:, :width]
    expected = rows.clone()
    apply_mask(expected, words)
    forbid_by(kernels, threads=2)(rows, words)
    torch.testing.assert_close(rows, expected, rtol=0, atol=0, equal_nan=True)
    assert (memory[:, -3:] == 1.0).all()


@pytest.mark.parametrize("heads", [1, 6])
def test_rotation_equals_torch(ops: CpuOps, heads: int) -> None:
    qkv = torch.randn(9, heads + 2, 16)
    cos, sin = torch.randn(9, 1, 16), torch.randn(9, 1, 16)
    for x in (qkv, qkv[:, :heads], qkv[..., :8].contiguous(), qkv[..., :8]):
        c, s = cos[..., : x.shape[-1]].contiguous(), sin[..., : x.shape[-1]].contiguous()
        torch.testing.assert_close(ops.rotate(x, (c, s)), PLAIN.rotate(x, (c, s)))


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("fan", [1, 8])
def test_decodes_that_share_a_prefix_get_to_the_last_bit_what_each_gets_alone(
    kernels: Kernels, page_size: int, threads: int, fan: int
) -> None:
    """With groups of several prefixes, rows without one, and groups interrupted by other rows; with
    one and with several queries for each head of the keys."""
    torch.manual_seed(0)
    # Large enough for several threads.
    layer = AttentionLayer(
        index=0, heads=2 * fan, kv_heads=2, head_dim=64, v_head_dim=64, scale=0.125
    )
    pool = TokenToKVPool([layer], 8192, torch.float32, torch.device("cpu"))
    for part in (*pool.k, *pool.v):
        part.normal_()
    lengths = np.array([300, 290, 258, 257, 70, 700, 513, 700, 1, 64, 65], dtype=np.int32)
    pages = -(-int(lengths.max()) // page_size)
    table = np.random.default_rng(0).permutation(len(lengths) * pages).astype(np.int32)
    table = table.reshape(len(lengths), pages)
    for row, other, tokens in [(1, 0, 256), (2, 0, 192), (3, 0, 256), (6, 5, 448), (7, 5, 128)]:
        table[row, : tokens // page_size] = table[other, : tokens // page_size]
    q = torch.randn(len(lengths), layer.heads, layer.head_dim)
    attention = CpuAttention(kernels, pool, threads)

    def attend(rows: slice) -> torch.Tensor:
        last = lengths[rows] - 1
        batch = trial_batch(cached=0, extend=1, page_size=page_size, rows=len(last))
        batch.seq_lens, batch.page_table = lengths[rows], table[rows]
        page = table[rows][np.arange(len(last)), last // page_size].astype(np.int64)
        batch.out_slots = page * page_size + last % page_size
        out = torch.from_numpy(batch.out_slots)
        attention.plan(batch)
        return attention.forward(q[rows], pool.k[0][out], pool.v[0][out], layer)

    together = attend(slice(None))
    for row in range(len(lengths)):
        assert torch.equal(together[row], attend(slice(row, row + 1))[0]), row


def test_what_is_not_finite_in_one_attention_is_not_in_another_of_the_same_thread(
    kernels: Kernels,
) -> None:
    """Of another model, or of a layer with other dimensions."""
    torch.manual_seed(0)

    def attend(dim: int, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        layer = AttentionLayer(
            index=0, heads=2, kv_heads=2, head_dim=dim, v_head_dim=dim, scale=0.25
        )
        pool = TokenToKVPool([layer], 64, torch.float32, torch.device("cpu"))
        attention = CpuAttention(kernels, pool, threads=1)
        attention.plan(trial_batch(cached=0, extend=len(k), page_size=16, rows=1))
        return attention.forward(torch.ones(len(k), 2, dim), k, v, layer)

    k, v = torch.randn(2, 5, 2, 16)
    expected = attend(16, k, v)
    assert expected.isfinite().all()
    nothing = torch.full((40, 2, 64), torch.nan)
    assert attend(64, nothing, nothing).isnan().all()
    assert torch.equal(attend(16, k, v), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES.keys())
def test_attention_equals_brute_force(
    kernels: Kernels,
    rows: list[tuple[int, int]],
    page_size: int,
    released: bool,
    dtype: torch.dtype,
) -> None:
    """Torch rounds keys and values to the same bits as the pool."""

    def attention_on(pool: TokenToKVPool) -> CpuAttention:
        return CpuAttention(kernels, pool, threads=2)

    made = case(rows, page_size)
    assert_equals_brute_force(made, attention_on, released=released, dtype=dtype)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
def test_tokens_of_an_image_see_each_other(
    kernels: Kernels, page_size: int, released: bool, threads: int
) -> None:
    def attention_on(pool: TokenToKVPool) -> CpuAttention:
        return CpuAttention(kernels, pool, threads)

    made = case_with_images(page_size)
    assert_equals_brute_force(made, attention_on, released=released, images=IMAGES)
