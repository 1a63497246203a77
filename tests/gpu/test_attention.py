"""flashinfer's kernels, as the backend uses them, compared with brute force in float64."""

from typing import Any

import pytest
import torch

from pando_worker.attention.device_pages import Padding
from pando_worker.attention.flashinfer import backend as flashinfer_backend
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.fp8_queries import quantized_queries
from pando_worker.attention.flashinfer.graphs import FlashinferGraphs
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cuda.fp8_quantize import quantize_queries
from pando_worker.runner.cuda.capture import CudaCapture
from tests.worker.cuda.flashinfer.attention_cases import (
    BATCHES,
    DECODES,
    IMAGE_BATCHES,
    KINDS,
    LATENT,
    NARROW_VALUES,
    SHAPE,
    assert_brute_force,
    layers_of,
    pool_for,
    share,
)
from tests.worker.cuda.padding import padded
from tests.worker.model.test_attention import case, case_with_images

BF16 = torch.bfloat16
WIDE: list[dict[str, Any]] = [
    SHAPE | {"scale": 0.09, "head_dim": width, "v_head_dim": width} for width in (128, 256)
]
LATENTS: list[dict[str, Any]] = [LATENT, LATENT | {"heads": 16, "v_head_dim": 512}]


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize(
    "kinds",
    [KINDS, WIDE, [NARROW_VALUES], LATENTS],
    ids=["kinds", "wide", "narrow values", "latents"],
)
def test_attention_equals_brute_force(
    gpu: torch.device, kinds: list[dict[str, Any]], page_size: int
) -> None:
    made = [case(rows, page_size) for rows in BATCHES]
    slots = [own for each in made for own in each.slots]
    pool = pool_for(layers_of(kinds, gpu), slots, page_size, BF16, gpu)
    attention = FlashinferAttention(pool, page_size, BF16, 4096)
    for each in made:
        attention.plan(each.batch)
        assert_brute_force(attention, pool, each.batch, each.slots, atol=2e-2)


@pytest.mark.parametrize("page_size", [1, 16])
def test_tokens_of_an_image_see_each_other(gpu: torch.device, page_size: int) -> None:
    made = [case_with_images(page_size, *each) for each in IMAGE_BATCHES]
    slots = [own for each in made for own in each.slots]
    pool = pool_for(layers_of(KINDS, gpu), slots, page_size, BF16, gpu)
    attention = FlashinferAttention(pool, page_size, BF16, 4096, images_are_whole=True)
    for each, (_, images) in zip(made, IMAGE_BATCHES, strict=True):
        attention.plan(each.batch)
        assert_brute_force(attention, pool, each.batch, each.slots, atol=2e-2, images=images)


def test_torchs_attention_on_the_gpu_equals_brute_force(gpu: torch.device) -> None:
    """Models that flashinfer has no kernels for use it."""
    made = [case(rows, 16) for rows in BATCHES]
    slots = [own for each in made for own in each.slots]
    pool = pool_for(layers_of(KINDS, gpu), slots, 16, BF16, gpu)
    attention = TorchAttention(pool, BF16)
    for each in made:
        attention.plan(each.batch)
        assert_brute_force(attention, pool, each.batch, each.slots, atol=2e-2)


def test_long_rows_are_split_over_multiprocessors_and_put_together(gpu: torch.device) -> None:
    made = case([(8191, 1), (3, 1), (5000, 700)], 16)
    pool = pool_for(layers_of(KINDS, gpu), made.slots, 16, BF16, gpu)
    attention = FlashinferAttention(pool, 16, BF16, 4096)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=2e-2)


def test_fp8_keys_and_values_are_read_as_they_were_rounded(gpu: torch.device) -> None:
    made = case([(40, 1), (20, 30)], 16)
    pool = pool_for(layers_of(WIDE[:1], gpu), made.slots, 16, torch.float8_e4m3fn, gpu)
    attention = FlashinferAttention(pool, 16, BF16, 4096)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.15)


@pytest.mark.parametrize("kinds", [KINDS, WIDE], ids=["kinds", "wide"])
def test_flash_attention_3_takes_queries_in_fp8(
    gpu: torch.device, kinds: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Hopper; elsewhere FlashAttention 2 computes all. In extends over several tiles, and in
    shared prefixes."""
    monkeypatch.setattr(flashinfer_backend, "CASCADE_BYTES", 1)
    made = case([(1100, 1), (1100, 300), (1100, 20)], 16)
    share(made, 0, (1, 2), pages=64)
    pool = pool_for(layers_of(kinds, gpu), made.slots, 16, torch.float8_e4m3fn, gpu)
    attention = FlashinferAttention(pool, 16, BF16, 4096, quantizer=quantize_queries)
    for calls in attention._calls.values():
        calls.is_for_fa3 = lambda new, keys: True
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.25)


@pytest.mark.parametrize("tokens", [1, 16, 1000])
def test_queries_become_what_torch_makes_of_them(gpu: torch.device, tokens: int) -> None:
    q = torch.randn(tokens, 6, 128, device=gpu, dtype=BF16)[:, :4]
    values, scales = quantize_queries(q)
    expected = quantized_queries(q)
    torch.testing.assert_close(scales, expected[1])
    # Divisions may be rounded otherwise, and so numbers between two.
    torch.testing.assert_close(values.float(), expected[0].float(), rtol=0.13, atol=2.0**-9)


@pytest.mark.parametrize("new", [[1] * 6, [1, 5, 1, 30, 2, 1]])
def test_rows_that_attend_to_a_shared_prefix_together_get_what_each_gets_alone(
    gpu: torch.device, new: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flashinfer_backend, "CASCADE_BYTES", 1)
    made = case([(1100, count) for count in new], 16)
    share(made, 0, (2, 4), pages=64)
    share(made, 1, (5,), pages=2)
    pool = pool_for(layers_of(KINDS, gpu), made.slots, 16, BF16, gpu)
    attention = FlashinferAttention(pool, 16, BF16, 4096)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=2e-2)


@pytest.mark.parametrize("page_size", [1, 16])
def test_fixed_decodes_equal_brute_force_also_with_rows_of_padding(
    gpu: torch.device, page_size: int
) -> None:
    made = case(DECODES, page_size)
    pool = pool_for(layers_of([*KINDS, LATENT], gpu), made.slots, page_size, BF16, gpu)
    attention = FlashinferAttention(pool, page_size, BF16, 4096)
    padding = Padding(len(pool.k[0]) // page_size - 1)
    fixed = FlashinferGraphs(attention, 8, 1024, padding).at(8)
    fixed.plan(made.batch)
    whole = padded(made.batch, 8, padding)
    slots = [*made.slots, *torch.split(torch.from_numpy(whole.out_slots[-2:]), 1)]
    assert_brute_force(fixed, pool, whole, slots, atol=2e-2)


def test_a_replay_follows_the_plan_that_was_made_after_the_capture(gpu: torch.device) -> None:
    """Captured with short rows, replayed with long ones, which use more multiprocessors."""
    short, long = case([(3, 1)] * 8, 16), case([(n, 1) for n in range(0, 4000, 500)], 16)
    layers = layers_of(KINDS, gpu)
    pool = pool_for(layers, [*short.slots, *long.slots], 16, BF16, gpu)
    for part in (*pool.k, *pool.v):
        part.normal_()
    attention = FlashinferAttention(pool, 16, BF16, 4096)
    fixed = FlashinferGraphs(attention, 8, 8192, Padding(0)).at(8)
    q = torch.randn(8, 4, 64, device=gpu, dtype=BF16)
    new = {heads: torch.randn(8, heads, 64, device=gpu, dtype=BF16) for heads in (1, 2)}

    def run() -> torch.Tensor:
        outs = [
            fixed.forward(q, new[layer.kv_heads], new[layer.kv_heads], layer) for layer in layers
        ]
        return torch.stack(outs)

    fixed.plan(short.batch)
    replay, outs = CudaCapture()(run)
    for made in (long, short, long):
        fixed.plan(made.batch)
        replay()
        plain = TorchAttention(pool, BF16)
        plain.plan(made.batch)
        for layer, out in zip(layers, outs, strict=True):
            kv = new[layer.kv_heads]
            expected = plain.forward(q, kv, kv, layer)
            torch.testing.assert_close(out, expected, atol=2e-2, rtol=2e-2)
