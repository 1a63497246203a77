"""Recorded decode steps equal the model's code, for any kind of code."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import ForwardBatch
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.kernels import Kernels
from pando_worker.runner.cpu.cpu_tape import DecodeTapes, Tape
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.trial import trial_batch
from pando_worker.settings import WorkerSettings
from tests.worker.encoder_decoder.checkpoints import whisper
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World

CPU = torch.device("cpu")
LAYER = AttentionLayer(index=0, heads=2, kv_heads=1, head_dim=8, v_head_dim=8, scale=0.3)


class Taped:
    """Tapes of any function of tokens, positions and attention."""

    def __init__(self, kernels: Kernels, model: Any) -> None:
        pool = TokenToKVPool([LAYER], 64, torch.float32, CPU)
        for part in (*pool.k, *pool.v):
            part.fill_(0.5)  # earlier contents could be anything, even NaN
        self.attention = CpuAttention(kernels, pool, threads=1)
        self.model = model
        self.runs = 0
        self.tapes = DecodeTapes(self._counted, self.attention, FutureTokens(8, CPU), 4)

    def _counted(self, ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        self.runs += 1
        out: Tensor = self.model(ids, positions, attention)
        return out

    def expected(self, batch: ForwardBatch) -> Tensor:
        self.attention.plan(batch)
        with torch.inference_mode():
            out: Tensor = self.model(
                torch.from_numpy(batch.input_ids), torch.from_numpy(batch.positions), self.attention
            )
        return out.clone()


def decodes(rows: int, seed: int = 0) -> ForwardBatch:
    random = np.random.default_rng(seed)
    batch = trial_batch(cached=5, extend=1, page_size=16, rows=rows)
    batch.input_ids = random.integers(0, 10, rows)
    batch.page_table = np.arange(rows, dtype=np.int32)[:, None] % 4
    batch.out_slots = batch.page_table[:, 0].astype(np.int64) * 16 + 5
    return batch


def attends(ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
    """Has views, in-place operators, operators with several results, and attention."""
    table = torch.arange(10 * 32).reshape(10, 32).float().sin()
    x = torch.nn.functional.embedding(ids, table) * (1 + positions[:, None])
    q, k, v = (part.view(len(x), -1, 8) for part in x.tensor_split([16, 24], dim=1))
    out = attention.forward(q, k, v, LAYER)
    best, _ = out.flatten(1).add_(1.0).relu().topk(4, dim=1)
    return best


def test_a_number_of_rows_that_comes_again_is_recorded_and_then_played(kernels: Kernels) -> None:
    world = Taped(kernels, attends)
    for rows in (3, 2):
        assert world.tapes.run(decodes(rows)) is None
        for seed in range(4):
            batch = decodes(rows, seed)
            played = world.tapes.run(batch)
            assert played is not None
            torch.testing.assert_close(played, world.expected(batch))
    assert world.runs == 2 * 2  # to record and to prove, for each number of rows


def test_recording_imports_no_compiler() -> None:
    """It would take seconds, while requests run."""
    program = (
        "import sys, torch\n"
        "from pando_worker.runner.cpu.cpu_tape import Tape, _Recorder\n"
        "ids = torch.zeros(2)\n"
        "tape = Tape(ids, ids, ids, {}, ids)\n"
        "with _Recorder(tape):\n"
        "    ids + 1\n"
        "assert len(tape.calls) == 1\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_step_that_depends_on_values_is_not_recorded(
    kernels: Kernels, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pando.worker.cpu")

    def branches(ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        return ids[:, None].float() if int(ids.sum()) > 3 else positions[:, None].float()

    world = Taped(kernels, branches)
    assert [world.tapes.run(decodes(2)) for _ in range(4)] == [None] * 4
    assert world.runs == 1
    assert "decode steps of this model are not recorded" in caplog.text


def test_a_tape_that_gives_something_else_is_not_used(
    kernels: Kernels, caplog: pytest.LogCaptureFixture
) -> None:
    hidden_state: list[float] = []

    def forgets(ids: Tensor, positions: Tensor, attention: AttentionBackend) -> Tensor:
        hidden_state.append(float(len(hidden_state)))  # a state that no operator shows
        return ids[:, None] + torch.full((len(ids), 1), hidden_state[-1])

    world = Taped(kernels, forgets)
    assert [world.tapes.run(decodes(2)) for _ in range(4)] == [None] * 4
    assert "differs from the model: not used" in caplog.text


def test_prompts_and_large_batches_are_left_to_the_model(kernels: Kernels) -> None:
    world = Taped(kernels, attends)
    prompts = trial_batch(cached=0, extend=3, page_size=16, rows=1)
    assert [world.tapes.run(prompts) for _ in range(3)] == [None] * 3
    assert [world.tapes.run(decodes(65)) for _ in range(3)] == [None] * 3


def test_tokens_of_an_engine_that_plays_tapes_are_those_of_transformers(tmp_path: Path) -> None:
    reference = Reference(tmp_path)
    settings = WorkerSettings(
        model=str(tmp_path), page_size=4, max_total_tokens=1024, threads=1, cpu_kernels="on"
    )
    runner = TorchModelRunner(settings)
    world = World(pages=256, page_size=4, runner=runner)
    prompts = {f"r{i}": prompt(5 + 3 * i, seed=i) for i in range(4)}
    for index, (rid, tokens) in enumerate(prompts.items()):
        world.send(rid, tokens, max_new_tokens=10 + 5 * index)  # batches shrink as they end
    world.run()
    assert isinstance(runner.graphs, DecodeTapes)
    assert sorted(kind.rows for kind in runner.graphs._tapes) == [1, 2, 3, 4]
    for index, (rid, tokens) in enumerate(prompts.items()):
        assert world.tokens[rid] == reference.greedy(tokens, 10 + 5 * index)


def test_a_recorded_decode_step_of_whisper_is_one_native_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of torch's operators is between the kernels: each would wake all threads again."""
    runner = TorchModelRunner(
        WorkerSettings(
            model=str(whisper(tmp_path).path), max_total_tokens=256, threads=2, cpu_kernels="on"
        )
    )
    played: list[int] = []
    play = Tape.play

    def counted(tape: Tape) -> Tensor:
        played.append(len(tape.calls))
        return play(tape)

    monkeypatch.setattr(Tape, "play", counted)
    for _ in range(4):
        runner.logits(
            trial_batch(cached=5, extend=1, page_size=16, rows=3, source=runner.pools.source)
        )
    assert played
    assert set(played) == {1}
