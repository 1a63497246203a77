"""Recorded kernels, replayed as one call by several threads, equal the separate calls."""

import pytest
import torch
from torch import Tensor

from pando_worker.cpu.kernels import Call, Kernels

ROWS, WIDTH, LAYERS = 8, 512, 12


class Chain:
    """Layers that each read everything that the previous one wrote, on any thread."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.input = torch.randn(ROWS, WIDTH)
        self._weights = torch.randn(LAYERS, WIDTH, WIDTH)
        self._ones = torch.ones(WIDTH)
        self._products = torch.empty(LAYERS, ROWS, WIDTH)
        self.normed = torch.empty(LAYERS, ROWS, WIDTH)

    def call(self, kernels: Kernels) -> None:
        x = self.input
        for product, normed, weight in zip(self._products, self.normed, self._weights, strict=True):
            addresses = (weight.data_ptr(), None, product.data_ptr())
            kernels.linear(x.data_ptr(), WIDTH, *addresses, ROWS, WIDTH, WIDTH, 0, 1)
            kernels.rms_norm(
                *(product.data_ptr(), WIDTH, self._ones.data_ptr(), 0.0, normed.data_ptr()),
                *(ROWS, WIDTH, 1e-6),
            )
            x = normed

    def recorded(self, kernels: Kernels, threads: int) -> list[Call]:
        calls: list[Call] = []
        kernels.record(calls, threads)
        self.call(kernels)
        kernels.stop_recording()
        return calls


def play(calls: list[Call]) -> None:
    for function, args in calls:
        function(*args)


def test_neighbouring_calls_become_one(kernels: Kernels) -> None:
    chain, others = Chain(), []
    calls = chain.recorded(kernels, threads=2)
    assert len(calls) == 1
    kernels.record(calls, 2)
    chain.call(kernels)
    calls.append((lambda: others.append(1), ()))  # such as an operator of torch
    chain.call(kernels)
    kernels.stop_recording()
    assert len(calls) == 4
    chain.call(kernels)  # no longer recorded
    assert len(calls) == 4


def test_threads_wait_for_what_others_write_and_change_no_bit(kernels: Kernels) -> None:
    """With more threads than most test machines have cores, so that some lose their core."""
    chain = Chain()
    calls = chain.recorded(kernels, threads=5)
    for turn in range(50):
        chain.input.copy_(torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(turn)))
        chain.normed.zero_()
        play(calls)
        played: Tensor = chain.normed.clone()
        chain.call(kernels)
        assert torch.equal(played, chain.normed), turn


def test_a_run_gives_its_memory_back(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    monkeypatch.setattr(kernels._library, "pando_tape_free", freed.append)
    calls = Chain().recorded(kernels, threads=1)
    assert not freed
    calls.clear()
    monkeypatch.undo()
    assert len(freed) == 1
    kernels._library.pando_tape_free(freed[0])
