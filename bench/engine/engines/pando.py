"""Pando's engine as in the worker's scheduler process: scheduler, pools, cache, model."""

import logging
from pathlib import Path

from bench.engine.engines.contestant import Engine, Job, Outcome, Stopwatch
from pando_worker.batch import ModelRunner
from pando_worker.messages import Event, FlushCache, Generate, Outputs, Rejected, SamplingParams
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.settings import WorkerSettings

# The scheduler process sets these before it imports torch.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}


def overlapped(model: Path, threads: int) -> Engine:
    return _engine(WorkerSettings(model=str(model), threads=threads, overlap_schedule=True))


def sequential(model: Path, threads: int) -> Engine:
    return _engine(WorkerSettings(model=str(model), threads=threads, overlap_schedule=False))


def with_bytes(model: Path, threads: int) -> Engine:
    """With weights as integers of 8 bits."""
    return _engine(WorkerSettings(model=str(model), threads=threads, quantization="int8"))


def without_kernels(model: Path, threads: int) -> Engine:
    """The fallback without a compiler."""
    settings = WorkerSettings(
        model=str(model), threads=threads, overlap_schedule=False, cpu_kernels="off"
    )
    return _engine(settings)


def _engine(settings: WorkerSettings) -> Engine:
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # logs the chosen path
    model = TorchModelRunner(settings)
    runner: ModelRunner = ThreadedRunner(model) if settings.overlap_schedule else model
    scheduler = make_scheduler(settings, model.pools, runner)

    def run(job: Job) -> Outcome:
        scheduler.receive(FlushCache(call=0))  # a job shares prefixes only with itself
        tokens: dict[str, list[int]] = {str(index): [] for index in range(len(job.prompts))}
        watch = Stopwatch()
        for rid, prompt in zip(tokens, job.prompts, strict=True):
            sampling = SamplingParams(max_new_tokens=job.new_tokens, temperature=0.0)
            command = Generate(rid=rid, input_ids=prompt, sampling=sampling)
            _take(scheduler.receive(command), tokens)
        while not scheduler.is_idle:
            _take(scheduler.step(), tokens)
        return watch.outcome(list(tokens.values()))

    return run


def _take(events: list[Event], tokens: dict[str, list[int]]) -> None:
    for event in events:
        if isinstance(event, Rejected):
            raise RuntimeError(event.message)
        if isinstance(event, Outputs):
            for output in event.outputs:
                tokens[output.rid] += output.token_ids
