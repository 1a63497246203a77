"""Sums over ranks with the norm behind them in one kernel: on a library written from flashinfer's
documentation, with ranks in threads; and when NCCL sums instead."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from pando_worker.cuda import sum_norm
from pando_worker.cuda.sum_norm import FlashinferSumNorm, choose_sum_norm
from pando_worker.models.parallel import ParallelGroup
from tests.worker.cuda.fake_gpu.kernels import Meeting
from tests.worker.cuda.flashinfer import comm_by_the_book as book

HOPPER, BLACKWELL, AMPERE = (9, 0), (10, 0), (8, 0)
BF16 = torch.bfloat16
EPS = 1e-5
T = TypeVar("T")


class Thread(ParallelGroup):
    """One of several ranks that are threads."""

    def gather(self, thing: Any) -> list[Any]:
        meeting: Any = self.process_group
        found: list[Any] = meeting.exchange(self.rank, thing)
        return found


def on_ranks(size: int, run: Callable[[ParallelGroup], T]) -> list[T]:
    meeting: Any = Meeting(size)
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(run, [Thread(rank, size, meeting) for rank in range(size)]))


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_norm, "import_module", {"flashinfer.comm": book}.__getitem__)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize(("size", "tokens", "hidden"), [(2, 1, 64), (2, 5, 448), (4, 3, 128)])
def test_the_sum_and_its_norm_are_those_of_float64(
    size: int, tokens: int, hidden: int, offset: bool
) -> None:
    draw = torch.Generator().manual_seed(tokens)
    x, weight = (torch.randn(n, hidden, generator=draw).to(BF16) for n in (tokens, 1))
    # Not contiguous, as a view of something wider may be.
    parts = [torch.randn(hidden, tokens, generator=draw).to(BF16).T for _ in range(size)]

    def run(group: ParallelGroup) -> tuple[Tensor, Tensor]:
        made = choose_sum_norm(group, HOPPER, hidden, BF16, tokens)
        assert made is not None and made.takes(x) and not made.takes(torch.cat([x, x[:1]]))
        return made.run(x, parts[group.rank], weight[0], EPS, offset)

    total = x.double() + sum(part.double() for part in parts)
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + EPS)
    expected = total, total * scale * (weight.double() + offset)
    for found in on_ranks(size, run):
        for mine, exact in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.double(), exact, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize(
    ("capability", "size", "hidden", "most", "tokens"),
    [
        (HOPPER, 2, 4096, 2304, 1024),
        (HOPPER, 2, 4096, 300, 300),
        (HOPPER, 4, 4096, 2304, 256),
        (HOPPER, 8, 8192, 2304, 64),
        (BLACKWELL, 4, 4096, 2304, 1024),
        (HOPPER, 3, 4096, 2304, 0),
        (HOPPER, 2, 4100, 2304, 0),
        (AMPERE, 2, 4096, 2304, 0),
    ],
)
def test_steps_are_summed_with_the_norm_up_to_a_size_for_the_gpus_and_else_by_nccl(
    capability: tuple[int, int],
    size: int,
    hidden: int,
    most: int,
    tokens: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    for made in on_ranks(
        size, lambda group: choose_sum_norm(group, capability, hidden, BF16, most)
    ):
        assert (made is not None) == bool(tokens)
        if made is not None:
            assert made.takes(torch.empty(tokens, 1)) and not made.takes(torch.empty(tokens + 1, 1))
    said = f"flashinfer's, with the norm, up to {tokens} tokens" if tokens else "NCCL, as there is"
    assert caplog.text.count(f"sums over ranks: {said}") == size


@pytest.mark.parametrize("failing", [{0}, {2}, {1, 3}])
@pytest.mark.parametrize("step", [0, 1, len(book.BUFFERS), "library", "made"])
def test_all_ranks_use_nccl_at_once_if_one_cannot_use_the_kernel(
    step: int | str,
    failing: set[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wherever it fails: a rank that waits for another one fails the test after two minutes."""
    here = threading.local()

    def fail_at(now: int | str) -> None:
        if now == step and here.rank in failing:
            raise RuntimeError("peer access is not supported between these two devices")

    def load(name: str) -> Any:
        fail_at("library")
        return book

    make = FlashinferSumNorm.__init__

    def make_on_rank(self: FlashinferSumNorm, *given: Any) -> None:
        make(self, *given)
        fail_at("made")

    def choose(group: ParallelGroup) -> FlashinferSumNorm | None:
        here.rank = group.rank
        return choose_sum_norm(group, HOPPER, 4096, BF16, 9)

    monkeypatch.setattr(sum_norm, "import_module", load)
    monkeypatch.setattr(book, "prepare", lambda rank, now: fail_at(now))
    monkeypatch.setattr(FlashinferSumNorm, "__init__", make_on_rank)
    assert on_ranks(4, choose) == [None] * 4
    for reason, ranks in (
        ("peer access is not supported", len(failing)),
        ("another rank failed", 4 - len(failing)),
    ):
        assert caplog.text.count(f"flashinfer's kernel cannot be used: {reason}") == ranks
