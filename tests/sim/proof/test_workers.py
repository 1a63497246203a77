"""What a worker's own meter says of steps with known costs makes a cost model with these costs."""

import random
from pathlib import Path

import msgspec
import pytest

from pando_router.recording.form import FleetState, Header, Measured, PoolState
from pando_sim.cost import CostModel, CostModelError
from pando_sim.cost.schema import CostFile, StepCost
from pando_sim.proof.workers import measured_cost, observed_workers
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.scheduler.meter import Meter

TRUE = CostModel(
    CostFile(
        name="true",
        model="m",
        machine="",
        source="",
        date="2026-01-01",
        step=StepCost(
            step_s=0.008,
            token_s=0.00012,
            free_tokens=64,
            prefill_step_s=0.003,
            prefill_context_s=2e-8,
            decode_row_s=0.0002,
            decode_context_s=1e-7,
        ),
    )
)
CHUNK = 1024
STATE_S = 20.0


class Worker:
    """A worker that serves for some time with about as many requests, as heartbeats show it."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._name, self._rng, self._meter = name, rng, Meter()
        self._prompts = self._prompt_tokens = 0

    def serve(self, batch: int) -> Measured:
        before, prompts, tokens = self._meter.stats(), self._prompts, self._prompt_tokens
        passed_s, context = 0.0, self._rng.randint(300, 3000)
        while passed_s < STATE_S:
            rows = max(1, batch + self._rng.randint(-2, 2))
            passed_s += self._step(rows, context, prompt=0)
            if self._rng.random() < 0.1:
                passed_s += self._step(0, context, prompt=self._rng.randint(100, 900))
        after = self._meter.stats()
        return Measured(
            self._name,
            120_000,
            batch,
            0,
            batch * context,
            after.prefill_tokens_per_s,
            after.prefill_context_per_s,
            after.doubling_context,
            after.decode_tokens_per_s,
            self._prompts - prompts,
            self._prompt_tokens - tokens,
            0,
            after.decoded_tokens_total - before.decoded_tokens_total,
            after.decode_seconds_total - before.decode_seconds_total,
        )

    def _step(self, rows: int, context: int, *, prompt: int) -> float:
        start = self._rng.randint(0, 8000) if prompt else 0
        seen = attended(start, prompt)
        seconds = TRUE.step_s(prompt, seen, rows, rows * context)
        if prompt:
            self._prompts += 1
            self._prompt_tokens += prompt
        self._meter.add_step(
            rows=rows + (prompt > 0),
            prefill_tokens=prompt,
            prefill_context=seen,
            decodes=rows,
            released=0,
            seconds=seconds,
        )
        return seconds


def recording(path: Path, batches: list[int], started: list[float]) -> Path:
    workers = [Worker(f"r{number}", random.Random(number)) for number in range(2)]
    lines: list[Header | FleetState] = [Header(started=0.0)]
    for number, batch in enumerate(batches):
        pool = PoolState(
            model="m",
            policy="cache_aware",
            replicas=2,
            ready=2,
            started=[("r", s) for s in started[number : number + 1]],
            measured=[worker.serve(batch) for worker in workers],
        )
        at = 1_790_000_000.0 + STATE_S * number
        lines.append(FleetState(fleet_at=at, router="r", pools={"chat": pool}))
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


def test_the_cost_model_of_a_recording_is_that_of_its_workers(tmp_path: Path) -> None:
    batches = [1, 3, 6, 10, 16, 24, 32, 40, 20, 5, 2, 12]
    path = recording(tmp_path / "trace.jsonl", batches, [31.0, 42.0, 35.0])
    (seen,) = observed_workers(path)
    file = measured_cost(seen, "cluster")
    found = CostModel(file)
    assert (file.model, file.start_s) == ("m", 35.0)
    assert measured_cost(seen, "cluster", 48.0).start_s == 48.0
    assert file.worker is not None and file.worker.capacity_tokens == 120_000
    for rows in (1, 8, 30):
        for context in (500, 2500):
            true = TRUE.step_s(decodes=rows, decode_context=rows * context)
            told = found.step_s(decodes=rows, decode_context=rows * context)
            assert told == pytest.approx(true, rel=0.1), (rows, context)
    for tokens, start in ((200, 0), (800, 0), (800, 6000)):
        true = TRUE.step_s(tokens, attended(start, tokens))
        told = found.step_s(tokens, attended(start, tokens))
        assert told == pytest.approx(true, rel=0.15), (tokens, start)
    assert file.quality is not None and file.quality.median_error < 0.05


def test_too_few_measurements_are_no_cost_model(tmp_path: Path) -> None:
    (seen,) = observed_workers(recording(tmp_path / "trace.jsonl", [4, 5], []))
    with pytest.raises(CostModelError, match="pool chat measured decodes in 4 lines"):
        measured_cost(seen, "cluster")
