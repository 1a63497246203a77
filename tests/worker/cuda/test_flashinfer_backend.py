"""What the flashinfer backend asks of the library, computed by the book, against brute force."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from pando_worker.attention import flashinfer_backend, flashinfer_graphs
from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.attention.flashinfer_backend import FlashinferAttention, refusal
from pando_worker.attention.flashinfer_calls import FlashinferUnavailable, Kind, Library
from pando_worker.attention.flashinfer_graphs import FlashinferGraphs
from pando_worker.memory.kv_pool import TokenToKVPool
from pando_worker.runner.batch import ForwardBatch
from pando_worker.runner.cuda_graph import padded
from tests.worker.cuda.flashinfer_by_the_book import ByTheBook
from tests.worker.model.test_attention import brute_force, case, rows_of

CPU = torch.device("cpu")
LIBRARY = cast(Library, ByTheBook())
SINKS = torch.tensor([1.5, -2.0, 0.0, 4.0], dtype=torch.bfloat16)
SHAPE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 64, "v_head_dim": 64}
KINDS: list[dict[str, Any]] = [
    SHAPE | {"scale": 0.125},
    SHAPE | {"scale": 0.3, "kv_heads": 1},
    SHAPE | {"scale": 0.125, "window": 7},
    SHAPE | {"scale": 0.125, "window": 1},
    SHAPE | {"scale": 0.125, "window": 300},
    SHAPE | {"scale": 0.5, "soft_cap": 2.0},
    SHAPE | {"scale": 0.125, "sinks": SINKS},
    SHAPE | {"scale": 0.125, "sinks": SINKS, "window": 7},
]
DECODES = [(0, 1), (1, 1), (6, 1), (7, 1), (320, 1), (40, 1)]
BATCHES = [
    DECODES,
    [(0, 5), (0, 40), (0, 2)],  # prefills
    [(0, 1), (33, 1), (20, 30), (33, 1), (310, 9), (5, 2)],  # all mixed
]
NARROW_VALUES: dict[str, Any] = SHAPE | {"scale": 0.07, "head_dim": 192, "v_head_dim": 128}


def layers_of(kinds: list[dict[str, Any]]) -> list[AttentionLayer]:
    return [AttentionLayer(index=index, **kind) for index, kind in enumerate(kinds)]


def assert_brute_force(
    attention: AttentionBackend,
    pool: TokenToKVPool,
    batch: ForwardBatch,
    slots: list[Tensor],
    atol: float = 1e-2,
) -> None:
    """Cached keys are in the pool, the new ones come with the step; all else is not finite."""
    torch.manual_seed(0)
    count = len(pool.k[0])
    new = torch.from_numpy(batch.out_slots)
    for layer in pool.layers:
        whole_k = torch.randn(count, layer.kv_heads, layer.head_dim).bfloat16()
        whole_v = torch.randn(count, layer.kv_heads, layer.v_head_dim).bfloat16()
        for part in (pool.k[layer.index], pool.v[layer.index]):
            part.copy_(torch.full_like(part, torch.nan, dtype=torch.bfloat16))
        cached = torch.unique(torch.cat(slots))
        cached = cached[~torch.isin(cached, new)]
        pool.store(layer.index, cached, whole_k[cached], whole_v[cached])
        q = torch.randn(len(new), layer.heads, layer.head_dim).bfloat16()
        out = attention.forward(q, whole_k[new], whole_v[new], layer)
        rows = zip(rows_of(batch, q[: batch.extend_lens.sum()]), slots, strict=True)
        expected = [brute_force(row, whole_k[own], whole_v[own], layer) for row, own in rows]
        torch.testing.assert_close(
            out[: batch.extend_lens.sum()].double(), torch.cat(expected), atol=atol, rtol=atol
        )


def pool_for(
    layers: list[AttentionLayer], slots: list[Tensor], page_size: int, dtype: torch.dtype
) -> TokenToKVPool:
    pages = max(int(own.max()) for own in slots) // page_size + 1
    return TokenToKVPool(layers, (pages + 1) * page_size, dtype, CPU)


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("kinds", [KINDS, [NARROW_VALUES]], ids=["usual", "narrow values"])
def test_attention_equals_brute_force(kinds: list[dict[str, Any]], page_size: int) -> None:
    """One backend for all batches: a plan leaves nothing behind for the next."""
    made = [case(rows, page_size) for rows in BATCHES]
    slots = [own for each in made for own in each.slots]
    pool = pool_for(layers_of(kinds), slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    for each in made:
        attention.plan(each.batch)
        assert_brute_force(attention, pool, each.batch, each.slots)


def test_fp8_keys_and_values_are_read_as_they_were_rounded() -> None:
    made = case([(40, 1), (20, 30)], 16)
    pool = pool_for(layers_of(KINDS[:1]), made.slots, 16, torch.float8_e4m3fn)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.15)


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
    batch, slots = made.batch, made.slots
    for first, others, pages in ((0, (2, 4), 4), (1, (5,), 2)):
        for row in others:
            batch.page_table[row, :pages] = batch.page_table[first, :pages]
            slots[row][: pages * page_size] = slots[first][: pages * page_size]
    pool = pool_for(layers_of(KINDS), slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    attention.plan(batch)
    assert {prefix.pages for prefix in attention.worth_sharing(batch, 1)} == {4, 2}
    assert_brute_force(attention, pool, batch, slots)


@pytest.mark.usefixtures("sharing_pays")
def test_all_rows_may_share_one_prefix() -> None:
    made = case([(64, 1)] * 3, 16)
    for row in (1, 2):
        made.batch.page_table[row, :4] = made.batch.page_table[0, :4]
        made.slots[row][:64] = made.slots[0][:64]
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.bfloat16)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots)


@pytest.mark.parametrize("page_size", [1, 16])
def test_fixed_decodes_equal_brute_force_also_with_rows_of_padding(page_size: int) -> None:
    made = case(DECODES, page_size)
    pool = pool_for(layers_of(KINDS), made.slots, page_size, torch.bfloat16)
    attention = FlashinferAttention(pool, page_size, torch.bfloat16, 4096, LIBRARY)
    graphs = FlashinferGraphs(attention, most_rows=8, context_length=1024)
    assert graphs.takes(made.batch)
    fixed = graphs.at(8)
    whole = padded(made.batch, 8, page=len(pool.k[0]) // page_size - 1)
    fixed.plan(whole)
    slots = [*made.slots, *torch.split(torch.from_numpy(whole.out_slots[-2:]), 1)]
    assert_brute_force(fixed, pool, whole, slots)


def test_batches_that_list_too_many_pages_or_share_a_lot_are_not_for_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = case([(64, 1)] * 3, 16)
    made.batch.page_table[1:, :4] = made.batch.page_table[0, :4]
    pool = pool_for(layers_of(KINDS), made.slots, 16, torch.bfloat16)
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY)
    assert FlashinferGraphs(attention, 8, 1024).takes(made.batch)
    with monkeypatch.context() as changed:
        changed.setattr(flashinfer_graphs, "MOST_PAGES", 10)
        assert not FlashinferGraphs(attention, 8, 1024).takes(made.batch)
    monkeypatch.setattr(flashinfer_graphs, "CASCADE_BYTES", 1)
    assert not FlashinferGraphs(attention, 8, 1024).takes(made.batch)


def test_what_flashinfer_lacks_is_refused_with_the_reason() -> None:
    def kind(**fields: Any) -> Kind:
        return Kind.of(AttentionLayer(index=0, **(SHAPE | {"scale": 0.1} | fields)))

    assert refusal([kind()], torch.bfloat16) is None
    assert "float32" in str(refusal([kind()], torch.float32))
    assert "heads of 80" in str(refusal([kind(head_dim=80)], torch.bfloat16))
    assert "soft cap" in str(refusal([kind(sinks=SINKS, soft_cap=1.0)], torch.bfloat16))
    layers = layers_of([SHAPE | {"scale": 0.1}])
    pool = TokenToKVPool(layers, 16, torch.float32, CPU)
    with pytest.raises(FlashinferUnavailable, match="float32"):
        FlashinferAttention(pool, 16, torch.float32, 64, LIBRARY)
