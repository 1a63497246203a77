"""The race between kernels and torch: its result, its duration, and where its outcome is kept."""

import itertools
import json
import logging
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.runner.cpu import cpu_path, kept_races
from pando_worker.runner.cpu import race as races
from pando_worker.runner.cpu.kept_races import raced_once
from pando_worker.runner.cpu.race import (
    Lap,
    Limit,
    NotedOps,
    Outcome,
    Shape,
    Times,
    in_kernels,
    race,
    shapes,
)
from pando_worker.runner.cpu.waits import waited_s
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.trial import trial_batch
from pando_worker.settings import WorkerSettings
from tests.waiting import PATIENCE_S, until
from tests.worker.model.checkpoints import Reference

LAYER = AttentionLayer(index=0, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25)
WIDE, SMALL = Shape(64, 4, 1), Shape(8, 4, 1)
OUTCOME = Outcome([Lap(1, 2.0, 1.0)], [Limit(8, 4, 16)], undisturbed=True)


class SlowProducts(CpuOps):
    """Kernels whose products take `seconds` from `from_rows` rows on."""

    def __init__(self, kernels: Kernels, seconds: float, from_rows: int) -> None:
        super().__init__(kernels, 1, {})
        self._seconds, self._from_rows = seconds, from_rows
        self.slow = 0  # products that took so long

    def product(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if len(x) >= self._from_rows:
            self.slow += 1
            time.sleep(self._seconds)
        return x.new_empty(len(x), len(weight))


def raced(kernels: Kernels, ops: CpuOps, *weights: torch.Tensor, recorded: bool = True) -> Outcome:
    pool = TokenToKVPool([LAYER], 64, torch.float32, torch.device("cpu"))
    return race(
        weights=weights,
        kernels=ops,
        attention=(TorchAttention(pool), CpuAttention(kernels, pool, 1)),
        layers=[LAYER],
        decodes=lambda rows: trial_batch(cached=15, extend=1, page_size=16, rows=rows),
        recorded=True,
    )


def test_a_products_limit_is_the_most_rows_at_which_the_kernel_is_faster(kernels: Kernels) -> None:
    weights = (torch.ones(2048, 1024), torch.ones(2048, 1024), torch.ones(1024, 1024))
    outcome = raced(kernels, SlowProducts(kernels, 0.3, from_rows=16), *weights)
    assert outcome.linear_rows == {(2048, 1024): 4, (1024, 1024): 4}


@pytest.mark.parametrize(
    ("small_s", "attention_s", "recorded", "chosen"),
    [
        (0.9, 0.0, True, {WIDE, SMALL}),
        (1.1, 0.0, True, {WIDE, SMALL}),  # 2.1 seconds instead of 2
        (1.1, 0.0, False, {WIDE}),
        (1.5, 0.0, True, {WIDE}),  # 2.5 instead of 2
        (1.5, 1.0, True, {WIDE, SMALL}),  # 3.5 instead of 3
    ],
)
def test_a_recorded_step_has_all_products_in_the_kernels_or_each_in_the_faster_code(
    small_s: float, attention_s: float, recorded: bool, chosen: set[Shape]
) -> None:
    products = {WIDE: Times(4.0, 1.0), SMALL: Times(1.0, small_s)}
    assert set(in_kernels(products, attention_s, recorded)) == chosen


def test_a_race_of_slow_contestants_ends_after_a_second_and_a_turn(kernels: Kernels) -> None:
    products = SlowProducts(kernels, 0.3, from_rows=1)
    outcome = raced(kernels, products, *[torch.ones(8, 8)] * 3)
    assert 1 <= products.slow <= races.SECONDS // 0.3 + 2  # not ROUNDS for each number of rows
    assert outcome.linear_rows == {(8, 8): 0}


@pytest.mark.parametrize("waits", [True, False])
def test_a_race_knows_whether_each_contest_ran_without_waiting_for_cores(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    waited = itertools.count(step=10.0 if waits else 0.0)  # before and after each round
    monkeypatch.setattr(races, "waited_s", waited.__next__)
    products = SlowProducts(kernels, 0.3, from_rows=1)
    outcome = raced(kernels, products, torch.ones(8, 8))
    assert outcome.undisturbed is not waits
    most = races.SECONDS * (1 + waits * races.SPARE)
    assert products.slow <= most // 0.3 + 2  # disturbed rounds get more time, but not for ever


def test_waiting_for_a_core_that_another_process_has_is_counted() -> None:
    before, cores = waited_s(), os.sched_getaffinity(0)
    core = {min(cores)}
    other = multiprocessing.get_context("fork").Process(target=_spin, args=(core,), daemon=True)
    other.start()
    os.sched_setaffinity(0, core)
    try:
        until(lambda: _busy() and waited_s() > before + 0.1, "waits beside another process")
    finally:
        os.sched_setaffinity(0, cores)
        other.kill()
        other.join()


def _busy() -> bool:
    """Wants a core all the time, for a moment."""
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    return True


def _spin(core: set[int]) -> None:
    os.sched_setaffinity(0, core)
    while True:
        pass


def test_the_kernels_win_by_the_mean_of_ratios() -> None:
    laps = [Lap(1, 3.0, 1.0), Lap(64, 50.0, 100.0)]
    assert Outcome(laps, [], undisturbed=True).kernels_win
    assert not Outcome([Lap(1, 1.2, 1.0), laps[1]], [], undisturbed=True).kernels_win


def test_products_are_noted_by_shape() -> None:
    ops = NotedOps()
    for width in (3, 5, 3):
        assert ops.linear(torch.ones(2, 4), torch.ones(width, 4)).shape == (2, width)
    assert shapes(ops.weights) == [Shape(3, 4, 2), Shape(5, 4, 1)]


def test_an_outcome_is_kept_for_its_conditions_alone(empty_cache: Path) -> None:
    turns: list[str] = []

    def ran(condition: str) -> Outcome:
        turns.append(condition)
        return OUTCOME

    for condition in ("one", "two", "one", "two"):
        assert raced_once([condition], partial(ran, condition)) == OUTCOME
    assert turns == ["one", "two"]


def test_a_disturbed_outcome_is_used_by_workers_that_start_now_and_by_no_later_ones(
    empty_cache: Path,
) -> None:
    disturbed = msgspec.structs.replace(OUTCOME, undisturbed=False)
    assert raced_once("x", lambda: disturbed) == disturbed
    assert raced_once("x", lambda: pytest.fail("it races beside the others")) == disturbed
    [path] = (empty_cache / "races").glob("*.json")
    old = time.time() - kept_races.DISTURBED_S
    os.utime(path, (old, old))
    assert raced_once("x", lambda: OUTCOME) == OUTCOME
    os.utime(path, (old, old))
    assert raced_once("x", lambda: pytest.fail("this one was undisturbed")) == OUTCOME


@pytest.mark.parametrize("content", ["", "{", '{"laps": 1, "limits": []}', "\x00"])
def test_an_unreadable_outcome_is_ignored_and_replaced(
    empty_cache: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    raced_once("x", lambda: OUTCOME)
    [path] = (empty_cache / "races").glob("*.json")
    path.write_text(content)
    caplog.set_level(logging.WARNING, "pando.worker.cpu")
    other = Outcome([], [], undisturbed=True)
    assert raced_once("x", lambda: other) == other
    assert f"{path} is not readable" in caplog.text
    assert json.loads(path.read_text()) == {"laps": [], "limits": [], "undisturbed": True}


def test_no_more_outcomes_are_kept_than_a_bound(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_races, "KEPT", 3)
    for number in range(5):
        raced_once(number, lambda: OUTCOME)
    assert len(list((empty_cache / "races").glob("*.json"))) == 3
    assert raced_once(4, lambda: pytest.fail("the last one is kept")) == OUTCOME


def test_without_a_folder_each_start_races(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path / "file"))
    caplog.set_level(logging.INFO, "pando.worker.cpu")
    assert raced_once("x", lambda: OUTCOME) == OUTCOME
    assert "cannot be kept" in caplog.text


def _race_and_note(notes: Any, started: Any) -> None:
    def ran() -> Outcome:
        notes.put(os.getpid())
        started.wait(60)  # until the other one waits for this one's file
        return OUTCOME

    assert raced_once("x", ran) == OUTCOME


def test_of_two_workers_one_races_and_the_other_waits_for_its_outcome(empty_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    notes, both = context.Queue(), context.Event()
    workers = [context.Process(target=_race_and_note, args=(notes, both)) for _ in range(2)]
    for worker in workers:
        worker.start()
    notes.get(timeout=PATIENCE_S)
    both.set()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert notes.empty()


def test_a_second_start_of_a_model_does_not_race(
    kernels_file: Path, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_cache.mkdir()
    (empty_cache / kernels_file.name).symlink_to(kernels_file)  # else they would be built again
    Reference(tmp_path / "model")
    settings = {"page_size": 4, "max_total_tokens": 4000, "threads": 1}
    model = str(tmp_path / "model")
    first = TorchModelRunner(WorkerSettings(model=model, **settings))  # type: ignore[arg-type]
    monkeypatch.setattr(cpu_path, "race", lambda **_: pytest.fail("it races again"))
    second = TorchModelRunner(WorkerSettings(model=model, **settings))  # type: ignore[arg-type]
    assert type(first.attention) is type(second.attention)
    assert len(list((empty_cache / "races").glob("*.json"))) == 1
