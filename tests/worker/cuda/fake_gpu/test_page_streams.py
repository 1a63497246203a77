"""The host tier's copies on a fake GPU: each page has what it would have if all copies ran one
after another, and events order all that must be. With a wait left out, they do not."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from tests.worker.cuda.fake_gpu.device import FakeGpu, Stream
from tests.worker.cuda.fake_gpu.memory import CudaError
from tests.worker.cuda.fake_gpu.patches import fake_gpus
from tests.worker.cuda.fake_gpu.tensors import raw

LAYERS = [
    AttentionLayer(index=index, heads=2, kv_heads=heads, head_dim=4, v_head_dim=width, scale=1.0)
    for index, (heads, width) in enumerate([(2, 4), (1, 3), (2, 4), (1, 8)])
]
PAGE, DEVICE_PAGES, HOST_PAGES = 2, 12, 16


@pytest.fixture(autouse=True)
def a_group_for_each_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_pages, "PIECE_BYTES", 1)


class World:
    """The pools, and what each page must hold: one number per layer."""

    def __init__(self, gpu: FakeGpu, staged_pages: int) -> None:
        self.gpu, self.random = gpu, np.random.default_rng(gpu.random.randrange(10**9))
        device = torch.device("cuda", 0)
        self.pool = TokenToKVPool(LAYERS, DEVICE_PAGES * PAGE, torch.float32, device)
        self.pool.clear()
        slot = self.pool.slot_bytes(released=False)
        staging = staged_pages * slot * PAGE
        self.host = HostKVPool(self.pool, PAGE, HOST_PAGES, staging_bytes=staging)
        self.on_device = np.zeros((DEVICE_PAGES, len(LAYERS)))
        self.on_host = np.full((HOST_PAGES, len(LAYERS)), np.nan)
        self.seen: list[tuple[torch.Tensor, float]] = []
        self.next = 1.0

    @property
    def streams(self) -> tuple[Stream, Stream, Stream]:
        """The model's, and those of stores and of loads."""
        model, out, inward = self.gpu.streams
        return model, out, inward

    def batch(self) -> None:
        """Stores, loads over pages that may just have been stored, then a step of the model."""
        self.host.pages.copy(self.stores(), self.loads())
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
        if self.random.random() < 0.2:
            torch.cuda.current_stream().synchronize()

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

    def check(self) -> None:
        torch.cuda.synchronize()
        for values, expected in self.seen:
            assert (raw(values) == expected).all()
        for layer in range(len(LAYERS)):
            for side in (self.pool.k[layer], self.pool.v[layer]):
                held = raw(side).view(DEVICE_PAGES, -1).double().numpy()
                assert (held == self.on_device[:, [layer]]).all()


@contextmanager
def worlds(seed: int, staged_pages: int) -> Iterator[World]:
    gpu = FakeGpu(seed=seed)
    with fake_gpus(gpu), torch.inference_mode():
        yield World(gpu, staged_pages)


def run(seed: int, staged_pages: int, mutate: Callable[[World], object]) -> None:
    with worlds(seed, staged_pages) as world:
        mutate(world)
        for _ in range(40):
            world.batch()
        world.check()


@pytest.mark.parametrize("staged_pages", [1, 8, 64])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 10))]
)
def test_every_page_has_what_it_would_have_if_copies_ran_in_order(
    seed: int, staged_pages: int
) -> None:
    run(seed, staged_pages, lambda world: None)


def deaf(number: int) -> Callable[[World], object]:
    """A stream waits for no event."""
    return lambda world: setattr(world.streams[number], "wait_event", lambda event: None)


def arrives_never(world: World) -> None:
    world.pool.before_layer = None


@pytest.mark.parametrize(
    "mutation",
    [deaf(0), deaf(1), deaf(2), arrives_never],
    ids=["the model", "stores", "loads", "layers"],
)
def test_a_wait_left_out_is_noticed(mutation: Callable[[World], object]) -> None:
    with pytest.raises((CudaError, AssertionError)):
        run(0, 8, mutation)


def test_stores_and_loads_of_the_same_host_page_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_streams._Direction, "wait_for", lambda *others: None)
    with pytest.raises(CudaError, match="registered memory"):
        run(0, 8, lambda world: None)


def pages(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int32)


def test_stores_do_not_wait_for_those_before_them_and_loads_for_no_other_pages() -> None:
    """As many stores as there are buffers leave the model's stream free, and loads of other pages
    come after none of them."""
    with worlds(0, staged_pages=8) as world:  # 2 in a buffer
        model, out, inward = world.streams
        before = out.time
        stored = PageCopies(device=pages(*range(8)), host=pages(*range(8)))
        loaded = PageCopies(device=pages(8, 9), host=pages(8, 9))
        world.host.pages.copy(stored, loaded)
        assert out.time > before
        assert model.seen.get(out, before) <= before and inward.seen.get(out, before) <= before
        world.host.pages.copy(stored, None)
        assert model.seen[out] > before, "a buffer that is taken again must be free"


def test_a_layer_waits_for_its_own_part_of_a_load_only() -> None:
    with worlds(0, staged_pages=8) as world:
        model, _, inward = world.streams
        world.host.pages.copy(None, PageCopies(device=pages(1, 2), host=pages(3, 4)))
        waited = [0]
        for layer in range(len(LAYERS)):
            world.pool.arrive(layer)
            waited.append(model.seen[inward])
        assert waited == sorted(set(waited)) and waited[-1] == inward.time


def test_what_is_pinned_is_what_the_pages_have_and_is_released() -> None:
    with worlds(0, staged_pages=8) as world:
        gpu = world.gpu
        bytes_of_pages = HOST_PAGES * PAGE * world.pool.slot_bytes(released=False)
        pinned = sum(block.nbytes for block in gpu.registered.values())
        assert world.host.pages.pinned_bytes == pinned == bytes_of_pages
        del world
    gc.collect()
    assert not gpu.registered


def test_memory_that_cannot_be_pinned_is_refused_with_the_setting() -> None:
    gpu = FakeGpu()
    gpu.refused = 2
    with (
        fake_gpus(gpu),
        pytest.raises(DoesNotFit, match=r"host_memory_gib is too large .* pinned: error 2"),
    ):
        World(gpu, staged_pages=8)


def test_layers_cross_the_bus_in_pieces_that_do_not_waste_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_pages, "PIECE_BYTES", 100)
    assert _grouped(dict.fromkeys(range(3), 100)) == [[0], [1], [2]]
    assert _grouped(dict.fromkeys(range(5), 60)) == [[0, 1], [2, 3, 4]]
    assert _grouped({2: 10, 5: 10}) == [[2, 5]]
    assert _grouped({}) == []
