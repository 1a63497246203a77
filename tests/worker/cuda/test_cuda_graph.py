"""The graph runner with repeated calls instead of graphs: which batches run in one, their padding,
and that a replay depends only on the memory that the graph reads."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.attention.device_pages import Padding
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner, graph_sizes
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.cuda.piecewise_graph import piece_sizes
from pando_worker.runner.sampling.future_tokens import FutureTokens
from tests.worker.cuda.padding import padded
from tests.worker.model.checkpoints import Reference
from tests.worker.model.paged import BareModel, Row

CPU = torch.device("cpu")
PAGE_SIZE = 4
SLOTS = 512
PADDING = Padding(SLOTS // PAGE_SIZE - 1)  # never allocated


def repeat(run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Acts like a CUDA graph: the same calls, with the result in the same memory."""
    hidden = run()

    @torch.inference_mode()
    def replay() -> None:
        hidden.copy_(run())

    return replay, hidden


class Sized:
    """The torch backend for one number of rows."""

    def __init__(self, attention: TorchAttention, rows: int, padding: Padding) -> None:
        self._attention, self._rows, self._padding = attention, rows, padding

    def plan(self, batch: ForwardBatch) -> None:
        assert len(batch.seq_lens) == len(batch.input_ids)
        self._attention.plan(padded(batch, self._rows, self._padding))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        assert len(q) == self._rows
        return self._attention.forward(q, k, v, layer)


class Fixed:
    """A `FixedAttention` on the torch backend."""

    def __init__(self, attention: TorchAttention, padding: Padding = PADDING) -> None:
        self._attention, self._padding = attention, padding
        self.is_willing = True

    def at(self, rows: int) -> AttentionBackend:
        return Sized(self._attention, rows, self._padding)

    def takes(self, batch: ForwardBatch, rows: int) -> bool:
        return self.is_willing


@pytest.fixture(autouse=True)
def as_in_a_runner() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    Reference(path)
    return path


class World:
    """A tiny Llama whose last page nobody owns, run with graphs and without."""

    def __init__(self, directory: Path, sizes: list[int]) -> None:
        self.bare = BareModel(directory, PAGE_SIZE, SLOTS)
        self.bare.pages._free = [page for page in self.bare.pages._free if page != PADDING.page]
        self.futures = FutureTokens(16, CPU)
        self.attention = Fixed(TorchAttention(self.bare.pool))
        self.graphs = CudaGraphRunner(
            self.bare.model,
            self.attention,
            self.futures,
            GraphInputs(sizes[-1], CPU, None),
            sizes=sizes,
            capture=repeat,
        )

    def eager(self, batch: ForwardBatch) -> Tensor:
        attention = TorchAttention(self.bare.pool)
        attention.plan(batch)
        ids = self.futures.resolve(batch.input_ids)
        hidden: Tensor = self.bare.model(ids, torch.from_numpy(batch.positions), attention)
        return self.bare.model.logits(hidden)

    def rows(self, lengths: list[int]) -> list[Row]:
        rows = [Row([7 + i + n for i in range(length)]) for n, length in enumerate(lengths)]
        self.bare.run(rows)
        for row in rows:
            row.tokens.append(11)
        return rows


def test_decodes_in_graphs_equal_decodes_without_step_after_step(directory: Path) -> None:
    world = World(directory, [1, 2, 4, 8])
    rows = world.rows([3, 9, 4, 17, 5])
    for count in (5, 2, 1, 4, 3, 5):  # the sizes 8, 2, 1, 4 and 4 again
        batch = world.bare.pages.batch(rows[:count], [1] * count)
        replayed = world.graphs.run(batch)
        assert replayed is not None and len(replayed) == count
        torch.testing.assert_close(replayed, world.eager(batch))
        for row in rows[:count]:
            row.tokens.append(int(replayed.sum().item() * 1000) % 90)


def test_tokens_that_are_not_known_yet_are_taken_from_the_device(directory: Path) -> None:
    world = World(directory, [4])
    batch = world.bare.pages.batch(world.rows([3, 9, 4]), [1] * 3)
    world.futures.put(np.array([6, 2]), torch.tensor([42, 43]))
    batch.input_ids[:] = [-1 - 6, 17, -1 - 2]
    replayed = world.graphs.run(batch)
    assert replayed is not None
    got = replayed.clone()
    batch.input_ids[:] = [42, 17, 43]
    torch.testing.assert_close(got, world.eager(batch))


def test_padding_writes_to_no_page_but_the_one_that_nobody_owns(directory: Path) -> None:
    world = World(directory, [8])
    rows = world.rows([3, 9, 4])
    batch = world.bare.pages.batch(rows, [1] * 3)
    before = [part.clone() for part in world.bare.pool.k]
    world.graphs.run(batch)
    own = set(batch.out_slots.tolist())
    for part, old in zip(world.bare.pool.k, before, strict=True):
        same = torch.isclose(part, old, equal_nan=True).flatten(1).all(1)
        changed = set(torch.nonzero(~same)[:, 0].tolist())
        assert changed - own <= set(range(SLOTS - PAGE_SIZE, SLOTS))


def test_other_batches_run_without_graphs(directory: Path) -> None:
    world = World(directory, [1, 2])
    rows = world.rows([3, 9, 4])
    assert world.graphs.run(world.bare.pages.batch(rows, [1] * 3)) is None  # too many
    rows[0].tokens += [1, 2]
    assert world.graphs.run(world.bare.pages.batch(rows[:1], [2])) is None  # no decode
    rows[1].tokens.append(1)
    world.attention.is_willing = False
    assert world.graphs.run(world.bare.pages.batch(rows[1:2], [1])) is None


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 64, 65, 100, 256, 1000])
def test_sizes_go_up_to_the_largest_and_never_waste_more_than_half(most: int) -> None:
    sizes = graph_sizes(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most
    smaller = [0, *sizes]
    assert all(size <= 2 * (before + 1) for before, size in zip(smaller, sizes, strict=False))


def test_no_size_means_no_graphs() -> None:
    assert graph_sizes(0) == []


@pytest.mark.parametrize("most", [1, 15, 16, 17, 100, 1000, 1024, 8192])
def test_numbers_of_tokens_for_pieces_waste_little(most: int) -> None:
    sizes = piece_sizes(most)
    assert sizes == sorted(set(sizes)) and sizes[-1] == most
    for before, size in zip([0, *sizes], sizes, strict=False):
        assert size - before <= max(16, (before + 1) / 8)
    assert piece_sizes(0) == []
