"""Pando's engine in this process, as in the scheduler process, with a stopwatch."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pando_worker.messages import (
    CacheFlushed,
    Event,
    FlushCache,
    Generate,
    Outputs,
    Rejected,
    SamplingParams,
)
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.settings import WorkerSettings


@dataclass(slots=True)
class Job:
    """Requests that were sent together."""

    sent: float
    first: dict[str, float] = field(default_factory=dict)  # when each had its first token
    tokens: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    all_started: float = 0.0
    tokens_then: int = 0
    ended: float = 0.0

    @property
    def decoded_per_s(self) -> float:
        """Tokens per second after all had their first one."""
        return (sum(self.tokens.values()) - self.tokens_then) / (self.ended - self.all_started)


class Engine:
    def __init__(self, model_dir: Path, **settings: Any) -> None:
        self.settings = WorkerSettings.model_validate(
            {"model": str(model_dir), "load_format": "dummy", **settings}
        )
        self.model = TorchModelRunner(self.settings)
        pools = self.model.pools
        self.scheduler = make_scheduler(self.settings, pools, self.model)
        self._sent = 0

    def send(self, prompts: Sequence[list[int]], new_tokens: int) -> Job:
        """Starts a job."""
        job = Job(time.perf_counter())
        for prompt in prompts:
            rid = str(self._sent)
            self._sent += 1
            job.tokens[rid] = 0
            sampling = SamplingParams(max_new_tokens=new_tokens, temperature=0.0)
            command = Generate(rid=rid, input_ids=prompt, sampling=sampling)
            self._take(job, self.scheduler.receive(command))
        return job

    def step(self, job: Job) -> None:
        self._take(job, self.scheduler.step())

    def run(self, prompts: Sequence[list[int]], new_tokens: int) -> Job:
        """Runs a job to its end."""
        job = self.send(prompts, new_tokens)
        self.finish(job)
        return job

    def finish(self, job: Job) -> None:
        while not self.scheduler.is_idle:
            self.step(job)
        job.ended = time.perf_counter()

    def flush_cache(self) -> None:
        [event] = self.scheduler.receive(FlushCache(call=0))
        assert isinstance(event, CacheFlushed) and event.done

    def _take(self, job: Job, events: list[Event]) -> None:
        now = time.perf_counter()
        for event in events:
            if isinstance(event, Rejected):
                raise RuntimeError(event.message)
            for output in event.outputs if isinstance(event, Outputs) else ():
                if output.token_ids:
                    job.first.setdefault(output.rid, now)
                    job.cached.setdefault(output.rid, output.cached_tokens)
                job.tokens[output.rid] += len(output.token_ids)
        if not job.all_started and len(job.first) == len(job.tokens):
            job.all_started, job.tokens_then = now, sum(job.tokens.values())


def random_prompts(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(vocab_size) for _ in range(length)] for _ in range(count)]
