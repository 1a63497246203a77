"""The flashinfer backend on the library from the documentation, compared with brute force."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pando_worker.attention.backend import AttentionLayer, KVScales
from pando_worker.attention.device_pages import Padding
from pando_worker.attention.flashinfer import backend as flashinfer_backend
from pando_worker.attention.flashinfer import graphs as flashinfer_graphs
from pando_worker.attention.flashinfer import kind as flashinfer_kind
from pando_worker.attention.flashinfer.backend import FlashinferAttention, refusal
from pando_worker.attention.flashinfer.calls import (
    DECODE_INT_WORKSPACE_BYTES,
    FixedRows,
    KernelCall,
    Memory,
    PinnedRows,
    Role,
    new_indptr,
)
from pando_worker.attention.flashinfer.graphs import FlashinferGraphs
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats
from pando_worker.attention.flashinfer.library import FlashinferUnavailable, Library
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.paged_rows import PagedRows
from pando_worker.attention.staging import Staging
from tests.examples import examples
from tests.worker.cuda.flashinfer.attention_cases import (
    BATCHES,
    CPU,
    DECODES,
    IMAGE_BATCHES,
    KINDS,
    LATENT,
    NARROW_VALUES,
    SHAPE,
    SINKS,
    assert_brute_force,
    layers_of,
    pool_for,
    share,
    window_slots_of,
    with_windows,
)
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook
from tests.worker.cuda.padding import padded
from tests.worker.model.test_attention import case, case_with_images

BF16 = torch.bfloat16
LIBRARY = cast(Library, ByTheBook())


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(
    "kinds",
    [KINDS, [NARROW_VALUES], [LATENT], [*KINDS, LATENT]],
    ids=["usual", "narrow values", "latents", "latents beside others"],
)
def test_attention_equals_brute_force(kinds: list[dict[str, Any]], page_size: int) -> None:
    """One backend for all batches, so that a plan's leftovers would affect the next."""
    made = [case(rows, page_size) for rows in BATCHES]
    slots = [own for each in made for own in each.slots]
    pool = pool_for(layers_of(kinds), slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    for each in made:
        attention.plan(each.batch)
        assert_brute_force(attention, pool, each.batch, each.slots)


@pytest.mark.parametrize("page_size", [1, 16])
def test_layers_that_release_pages_behind_their_window_read_and_write_their_own(
    page_size: int,
) -> None:
    for rows in BATCHES:
        made = case(rows, page_size)
        pool = pool_for(layers_of(KINDS), made.slots, page_size, torch.bfloat16, window=7)
        assert len(pool.windowed) == 3
        window_of = np.random.default_rng(1).permutation(len(pool.k[0]) // page_size - 1)
        batch = with_windows(made.batch, 7, window_of.astype(np.int32))
        attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
        attention.plan(batch)
        slots = window_slots_of(batch)
        assert_brute_force(attention, pool, batch, made.slots, window_slots=slots)


@pytest.mark.parametrize("page_size", [1, 16])
def test_tokens_of_an_image_see_each_other(page_size: int) -> None:
    """One backend for batches with images and without."""
    made = [case_with_images(page_size, *each) for each in IMAGE_BATCHES]
    slots = [own for each in made for own in each.slots]
    pool = pool_for(layers_of(KINDS), slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(
        pool, page_size, torch.bfloat16, 4096, LIBRARY, images_are_whole=True
    )
    for each, (_, images) in zip(made, IMAGE_BATCHES, strict=True):
        attention.plan(each.batch)
        assert_brute_force(attention, pool, each.batch, each.slots, images=images)
        plain = replace(each.batch, images=None)
        attention.plan(plain)
        assert_brute_force(attention, pool, plain, each.slots)


@pytest.mark.parametrize("page_size", [1, 16])
def test_images_in_layers_that_release_pages_behind_their_window(page_size: int) -> None:
    for rows, images in IMAGE_BATCHES:
        made = case_with_images(page_size, rows, images)
        pool = pool_for(layers_of(KINDS), made.slots, page_size, torch.bfloat16, window=7)
        window_of = np.random.default_rng(1).permutation(len(pool.k[0]) // page_size - 1)
        batch = with_windows(made.batch, 7, window_of.astype(np.int32))
        attention = FlashinferAttention(
            pool, page_size, torch.bfloat16, 4096, LIBRARY, images_are_whole=True
        )
        attention.plan(batch)
        found = window_slots_of(batch)
        assert_brute_force(attention, pool, batch, made.slots, window_slots=found, images=images)


@pytest.mark.parametrize("page_size", [1, 16])
def test_fixed_decodes_of_layers_that_release_pages_equal_brute_force(page_size: int) -> None:
    made = case(DECODES, page_size)
    pool = pool_for(layers_of(KINDS), made.slots, page_size, torch.bfloat16, window=7)
    last = len(pool.k[0]) // page_size - 1
    window_of = np.random.default_rng(1).permutation(last).astype(np.int32)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    fixed = FlashinferGraphs(attention, 8, 1024, Padding(last, last)).at(8)
    batch = with_windows(made.batch, 7, window_of)
    fixed.plan(batch)
    whole = padded(batch, 8, Padding(last, last))
    slots = [*made.slots, *torch.split(torch.from_numpy(whole.out_slots[-2:]), 1)]
    assert_brute_force(fixed, pool, whole, slots, window_slots=window_slots_of(whole))


@pytest.mark.parametrize("page_size", [1, 16])
def test_fixed_decodes_of_latents_equal_brute_force(page_size: int) -> None:
    made = case(DECODES, page_size)
    pool = pool_for(layers_of([LATENT, SHAPE | {"scale": 0.1}]), made.slots, page_size, BF16)
    last = len(pool.k[0]) // page_size - 1
    attention = FlashinferAttention(pool, page_size, BF16, 4096, LIBRARY)
    fixed = FlashinferGraphs(attention, 8, 1024, Padding(last)).at(8)
    fixed.plan(made.batch)
    whole = padded(made.batch, 8, Padding(last))
    slots = [*made.slots, *torch.split(torch.from_numpy(whole.out_slots[-2:]), 1)]
    assert_brute_force(fixed, pool, whole, slots)


@pytest.mark.parametrize(
    ("fields", "kv_dtype", "words"),
    [
        ({"heads": 4}, torch.bfloat16, None),
        ({"heads": 128, "v_head_dim": 512}, torch.bfloat16, None),
        ({"heads": 20}, torch.bfloat16, "or 128 heads, not 20"),
        ({"v_head_dim": 96}, torch.bfloat16, "latents of 96 and 64"),
        ({"head_dim": 32}, torch.bfloat16, "latents of 128 and 32"),
        ({"window": 7}, torch.bfloat16, "no windows"),
        ({}, torch.float8_e4m3fn, "keys and values of torch.bfloat16 only"),
    ],
)
def test_latents_that_it_cannot_compute_are_refused(
    fields: dict[str, Any], kv_dtype: torch.dtype, words: str | None
) -> None:
    kinds = [AttentionKind.of(layer) for layer in layers_of([LATENT | fields])]
    found = refusal(kinds, torch.bfloat16, kv_dtype)
    assert found is None if words is None else words in str(found)


@pytest.mark.parametrize("scales", [KVScales(), KVScales(2.0**-7, 2.0**-5), KVScales(0.013, 7.7)])
def test_fp8_keys_and_values_are_read_as_they_were_rounded(scales: KVScales) -> None:
    made = case([(40, 1), (20, 30)], 16)
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.float8_e4m3fn)
    pool.scales = [scales] * len(KINDS)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.25)


def test_fixed_decodes_and_shared_prefixes_take_the_scales_of_fp8(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flashinfer_backend, "CASCADE_BYTES", 1)
    made = case([(100, 1)] * 4, 16)
    share(made, 0, (1, 2), pages=4)
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.float8_e4m3fn)
    pool.scales = [KVScales(2.0**-7, 2.0**-5)] * len(KINDS)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    attention.plan(made.batch)
    assert attention.worth_sharing(made.batch, 1)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.25)
    fixed = FlashinferGraphs(attention, 4, 1024, Padding(0)).at(4)
    fixed.plan(made.batch)
    assert_brute_force(fixed, pool, made.batch, made.slots, atol=0.25)


@pytest.fixture
def sharing_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flashinfer_backend, "CASCADE_BYTES", 1)


@pytest.mark.usefixtures("sharing_pays")
@pytest.mark.parametrize("new", [[1, 1, 1, 1, 1, 1], [1, 5, 1, 30, 2, 1]])
def test_rows_that_attend_to_a_shared_prefix_together_get_what_each_gets_alone(
    new: list[int],
) -> None:
    """Rows 0, 2, 4 share four pages, 1 and 5 two others, row 3 none."""
    page_size = 16
    made = case([(100, count) for count in new], page_size)
    share(made, 0, (2, 4), pages=4)
    share(made, 1, (5,), pages=2)
    pool = pool_for(layers_of(KINDS), made.slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    attention.plan(made.batch)
    assert {prefix.pages for prefix in attention.worth_sharing(made.batch, 1)} == {4, 2}
    assert_brute_force(attention, pool, made.batch, made.slots)


@pytest.mark.usefixtures("sharing_pays")
@pytest.mark.parametrize("is_fa3", [True, False])
def test_extends_and_shared_prefixes_run_with_the_kernel_that_is_chosen(is_fa3: bool) -> None:
    """Each with the one of its lengths; decodes always split their keys."""
    made = case([(100, 1), (100, 30), (100, 20)], 16)
    share(made, 0, (1, 2), pages=5)
    pool = pool_for(layers_of([*KINDS, NARROW_VALUES]), made.slots, 16, torch.bfloat16)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    asked: list[tuple[list[int], list[int]]] = []

    def choice(new: Any, keys: Any) -> bool:
        asked.append((new.tolist(), keys.tolist()))
        return is_fa3

    for calls in attention._calls.values():
        calls.is_for_fa3 = choice
    attention.plan(made.batch)
    assert ([51], [80]) in asked and ([30, 20], [50, 40]) in asked
    for kind, plan in attention._plans.items():
        decodes, extends = (cast(KernelCall, call) for call, _ in plan.calls)
        can = kind.head_dim == kind.v_head_dim
        assert decodes._backend == "fa2"
        assert extends._backend == ("auto" if is_fa3 and can else "fa2")
        if kind.can_share:
            assert cast(KernelCall, plan.shared)._backend == extends._backend
    assert_brute_force(attention, pool, made.batch, made.slots)


@pytest.mark.usefixtures("sharing_pays")
def test_images_behind_a_shared_prefix_see_it_too() -> None:
    rows = [(100, 1), (100, 30), (100, 20)]
    images = [[], [range(4, 28)], [range(20)]]
    made = case_with_images(16, rows, images)
    share(made, 0, (1, 2), pages=5)
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.bfloat16)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY, images_are_whole=True)
    attention.plan(made.batch)
    assert attention.worth_sharing(made.batch, 1)
    assert_brute_force(attention, pool, made.batch, made.slots, images=images)


@pytest.mark.usefixtures("sharing_pays")
def test_all_rows_may_share_one_prefix() -> None:
    made = case([(64, 1)] * 3, 16)
    share(made, 0, (1, 2), pages=4)
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.bfloat16)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots)


@pytest.mark.parametrize("page_size", [1, 16])
def test_fixed_decodes_equal_brute_force_also_with_rows_of_padding(page_size: int) -> None:
    """Where an earlier step had other rows."""
    made = case(DECODES, page_size)
    pool = pool_for(layers_of(KINDS), made.slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    padding = Padding(len(pool.k[0]) // page_size - 1)
    graphs = FlashinferGraphs(attention, 8, 1024, padding)
    assert graphs.takes(made.batch, 8)
    fixed = graphs.at(8)
    fixed.plan(case([(30, 1)] * 8, page_size).batch)
    fixed.plan(made.batch)
    whole = padded(made.batch, 8, padding)
    slots = [*made.slots, *torch.split(torch.from_numpy(whole.out_slots[-2:]), 1)]
    assert_brute_force(fixed, pool, whole, slots)


def test_batches_that_list_too_many_pages_or_share_a_lot_are_not_for_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = case([(64, 1)] * 3, 16)
    share(made, 0, (1, 2), pages=4)
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.bfloat16)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    assert FlashinferGraphs(attention, 8, 1024, Padding(0)).takes(made.batch, 8)
    with monkeypatch.context() as changed:
        changed.setattr(flashinfer_graphs, "MOST_PAGES", 16)  # the rows list 5 pages each
        graphs = FlashinferGraphs(attention, 8, 1024, Padding(0))
        assert graphs.takes(made.batch, 4)
        graphs.at(4).plan(made.batch)
        assert not graphs.takes(made.batch, 8)  # padding rows list a page each
    monkeypatch.setattr(flashinfer_graphs, "CASCADE_BYTES", 1)
    assert not FlashinferGraphs(attention, 8, 1024, Padding(0)).takes(made.batch, 8)


@settings(max_examples=examples(40))
@given(
    kv_heads=st.sampled_from([1, 2, 4, 8]),
    group=st.sampled_from([1, 4, 8, 12, 16, 32, 128]),
    fixed_rows=st.sampled_from([1, 8, 256, 1024, 8192]),
    lengths=st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 600)), min_size=1, max_size=9),
    page_size=st.sampled_from([1, 16, 64]),
)
def test_the_workspace_is_large_enough_for_any_plan(
    kv_heads: int,
    group: int,
    fixed_rows: int,
    lengths: list[tuple[int, int]],
    page_size: int,
) -> None:
    """Only plans: the double checks what flashinfer would allocate."""
    assume(kv_heads * group * fixed_rows <= 2**16)  # of a workspace of 9 GB, which nobody touches
    kind = AttentionKind(
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=128,
        v_head_dim=128,
        scale=0.1,
        window=None,
        soft_cap=None,
        sinks=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flashinfer_kind, "LEAST_WORKSPACE_BYTES", 0)
        size = flashinfer_kind.workspace_bytes([kind], fixed_rows, 132)
    workspace = torch.empty(size, dtype=torch.uint8)
    memories = {
        Role.EXTEND: Memory.new(workspace),
        Role.DECODE: Memory.new(workspace, DECODE_INT_WORKSPACE_BYTES),
    }
    formats = Formats(torch.bfloat16, torch.float8_e4m3fn, page_size)
    for role in (Role.EXTEND, Role.DECODE):
        new = [count if role is Role.EXTEND else 1 for _, count in lengths]
        rows = listed([cached + n for (cached, _), n in zip(lengths, new, strict=True)], page_size)
        call = KernelCall(LIBRARY, kind, role, formats, memories[role])
        pages = torch.zeros(rows.indptr[-1], dtype=torch.int32)
        starts = new_indptr(np.array(new, dtype=np.int32))
        call.plan(PinnedRows.of(rows, starts, Staging(CPU)), pages)
    rows = listed([5000 if fixed_rows <= 1024 else 50] * fixed_rows, page_size)
    pages = torch.zeros(rows.indptr[-1], dtype=torch.int32)
    fixed = FixedRows.new(fixed_rows, pages.clone())
    for part in (kind, replace(kind, sinks=True)):
        call = KernelCall(LIBRARY, part, Role.DECODE, formats, memories[Role.DECODE], fixed)
        starts = new_indptr(np.ones(fixed_rows, dtype=np.int32))
        call.plan(PinnedRows.of(rows, starts, Staging(CPU)), pages)


def listed(lengths: list[int], page_size: int) -> PagedRows:
    pages = -(-np.array(lengths) // page_size)
    return PagedRows(
        firsts=np.zeros(len(pages), dtype=np.int32),
        indptr=new_indptr(pages.astype(np.int32)),
        last_lens=(np.array(lengths) - (pages - 1) * page_size).astype(np.int32),
        lengths=np.array(lengths, dtype=np.int32),
    )


def test_what_flashinfer_lacks_is_refused_with_the_reason() -> None:
    def kind(**fields: Any) -> AttentionKind:
        return AttentionKind.of(AttentionLayer(index=0, **(SHAPE | {"scale": 0.1} | fields)))

    assert refusal([kind()], BF16, BF16) is None
    assert "float32" in str(refusal([kind()], torch.float32, BF16))
    assert "heads of 80" in str(refusal([kind(head_dim=80)], BF16, BF16))
    assert "soft cap" in str(refusal([kind(sinks=SINKS, soft_cap=1.0)], BF16, BF16))
    layers = layers_of([SHAPE | {"scale": 0.1}])
    pool = TokenToKVPool(layers, 16, torch.float32, CPU)
    with pytest.raises(FlashinferUnavailable, match="float32"):
        FlashinferAttention(pool, 16, torch.float32, 64, LIBRARY)
