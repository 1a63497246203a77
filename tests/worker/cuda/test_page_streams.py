"""The host tier's copies on a fake device, in every order that CUDA would allow: each page has what
it would have if all copies ran one after another. With a wait left out, it has not."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import PageCopies
from pando_worker.models.errors import DoesNotFit
from pando_worker.runner.kv import host_pages, page_streams
from pando_worker.runner.kv.host_pages import _grouped
from pando_worker.runner.kv.host_pool import HostKVPool
from tests.worker.cuda.fake_cuda import Deferred, FakeCuda, fake_cuda

LAYERS = [
    AttentionLayer(index=index, heads=2, kv_heads=heads, head_dim=4, v_head_dim=width, scale=1.0)
    for index, (heads, width) in enumerate([(2, 4), (1, 3), (2, 4), (1, 8)])
]
PAGE, DEVICE_PAGES, HOST_PAGES = 2, 12, 16
NOBODYS = DEVICE_PAGES - 1


@pytest.fixture(autouse=True)
def a_group_for_each_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_pages, "PIECE_BYTES", 1)


class World:
    """The pools, and what each page must hold: one number per layer."""

    def __init__(self, cuda: FakeCuda, staged_pages: int) -> None:
        self.cuda, self.random = cuda, np.random.default_rng(cuda.random.randrange(10**9))
        self.pool = TokenToKVPool(LAYERS, DEVICE_PAGES * PAGE, torch.float32, torch.device("cpu"))
        for part in (*self.pool.k, *self.pool.v):
            part.zero_()
        slot = self.pool.slot_bytes(released=False)
        staging = staged_pages * slot * PAGE
        self.host = HostKVPool(self.pool, PAGE, HOST_PAGES, staging_bytes=staging, on_gpu=True)
        self.on_device = np.zeros((DEVICE_PAGES, len(LAYERS)))
        self.on_host = np.full((HOST_PAGES, len(LAYERS)), np.nan)
        self.seen: list[tuple[torch.Tensor, float]] = []
        self.next = 1.0

    def batch(self) -> None:
        """Stores, loads over pages that may just have been stored, then a step of the model."""
        self.host.pages.copy(self.stores(), self.loads())
        self.cuda.run(self.cuda.random.choice([0, 0, 3, 30]))
        for layer in range(len(LAYERS)):
            self.pool.arrive(layer)
            for side in (self.pool.k[layer], self.pool.v[layer]):
                for page in self.random.choice(DEVICE_PAGES, 3, replace=False).tolist():
                    slots = side[page * PAGE : (page + 1) * PAGE]
                    self.seen.append((slots.clone(), self.on_device[page, layer]))
        for page in self.random.choice(DEVICE_PAGES, 3, replace=False).tolist():
            for layer in range(len(LAYERS)):
                self.next += 1
                self.on_device[page, layer] = self.next
                for side in (self.pool.k[layer], self.pool.v[layer]):
                    side[page * PAGE : (page + 1) * PAGE].fill_(self.next)
        self.cuda.run(self.cuda.random.choice([0, 5, 50, 200]))

    def stores(self) -> PageCopies | None:
        count = int(self.random.integers(0, 9))
        device = self.random.choice(DEVICE_PAGES, count, replace=False).astype(np.int32)
        host = self.random.choice(HOST_PAGES, count, replace=False).astype(np.int32)
        self.on_host[host] = self.on_device[device]
        return PageCopies(device=device, host=host) if count else None

    def loads(self) -> PageCopies | None:
        filled = np.flatnonzero(~np.isnan(self.on_host[:, 0]))
        count = min(int(self.random.integers(0, 9)), len(filled))
        host = self.random.choice(filled, count, replace=False).astype(np.int32)
        device = self.random.choice(DEVICE_PAGES, count, replace=False).astype(np.int32)
        self.on_device[device] = self.on_host[host]
        return PageCopies(device=device, host=host) if count else None

    def wrong(self) -> int:
        """How many pages were, or are, not what they must be."""
        self.cuda.run(10**9)
        wrong = sum(bool((values != expected).any()) for values, expected in self.seen)
        for layer in range(len(LAYERS)):
            for side in (self.pool.k[layer], self.pool.v[layer]):
                pages = side.view(DEVICE_PAGES, -1).double().numpy()
                wrong += int((pages != self.on_device[:, [layer]]).sum())
        return wrong


def wrong_pages(seed: int, staged_pages: int, mutate: Callable[[World], object]) -> int:
    with fake_cuda(seed) as cuda:
        world = World(cuda, staged_pages)
        cuda.run(10**9)
        mutate(world)
        with Deferred(cuda):
            for _ in range(40):
                world.batch()
        return world.wrong()


@pytest.mark.parametrize("staged_pages", [1, 8, 64])
@pytest.mark.parametrize("seed", range(5))
def test_every_page_has_what_it_would_have_if_copies_ran_in_order(
    seed: int, staged_pages: int
) -> None:
    assert wrong_pages(seed, staged_pages, lambda world: None) == 0


def deaf(number: int) -> Callable[[World], object]:
    return lambda world: setattr(world.cuda.streams[number], "is_deaf", True)


def arrives_never(world: World) -> None:
    world.pool.before_layer = None


@pytest.mark.parametrize(
    "mutation",
    [deaf(0), deaf(1), deaf(2), arrives_never],
    ids=["the model", "stores", "loads", "layers"],
)
def test_without_its_waits_some_page_is_wrong(mutation: Callable[[World], object]) -> None:
    assert any(wrong_pages(seed, 8, mutation) for seed in range(5))


def test_stores_and_loads_of_the_same_host_page_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_streams._Direction, "wait_for", lambda *others: None)
    assert any(wrong_pages(seed, 8, lambda world: None) for seed in range(5))


def pages(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int32)


def test_stores_do_not_wait_for_those_before_them_and_loads_for_no_other_pages() -> None:
    """As many stores as there are buffers leave the model's stream free; loads of other pages
    finish while the stores' stream has not begun."""
    with fake_cuda(0) as cuda:
        world = World(cuda, staged_pages=8)  # 2 in a buffer
        cuda.run(10**9)
        model, out, inward = cuda.streams
        with Deferred(cuda):
            stored = PageCopies(device=pages(*range(8)), host=pages(*range(8)))
            loaded = PageCopies(device=pages(8, 9), host=pages(8, 9))
            world.host.pages.copy(stored, loaded)
        model.run()
        assert not model.queue and out.queue
        inward.run()
        assert not inward.queue


def test_a_layer_waits_for_its_own_part_of_a_load_only() -> None:
    with fake_cuda(0) as cuda:
        world = World(cuda, staged_pages=8)
        cuda.run(10**9)
        model, _, inward = cuda.streams
        with Deferred(cuda):
            world.host.pages.copy(None, PageCopies(device=pages(1, 2), host=pages(3, 4)))
            for layer in range(len(LAYERS)):
                world.pool.arrive(layer)
                model.run()
                assert model.queue, "the layer's pages have not arrived"
                while inward.queue and not model.is_ready:
                    inward.step()
                assert bool(inward.queue) == (layer < len(LAYERS) - 1)
                model.run()
                assert not model.queue


def test_what_is_pinned_is_what_the_pages_have_and_is_released() -> None:
    with fake_cuda(0) as cuda:
        world = World(cuda, staged_pages=8)
        bytes_of_pages = HOST_PAGES * PAGE * world.pool.slot_bytes(released=False)
        assert world.host.pages.pinned_bytes == sum(cuda.registered.values()) == bytes_of_pages
        del world
        gc.collect()
        assert not cuda.registered


def test_memory_that_cannot_be_pinned_is_refused_with_the_setting() -> None:
    with fake_cuda(0) as cuda:
        cuda.error = 2
        with pytest.raises(DoesNotFit, match=r"host_memory_gib is too large .* pinned: error 2"):
            World(cuda, staged_pages=8)


def test_layers_cross_the_bus_in_pieces_that_do_not_waste_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_pages, "PIECE_BYTES", 100)
    assert _grouped(dict.fromkeys(range(3), 100)) == [[0], [1], [2]]
    assert _grouped(dict.fromkeys(range(5), 60)) == [[0, 1], [2, 3, 4]]
    assert _grouped({2: 10, 5: 10}) == [[2, 5]]
    assert _grouped({}) == []
