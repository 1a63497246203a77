"""The effect of a long prompt on running streams: the time between their tokens, with and without
mixed batches.

Run: python -m bench.scheduler.mixed_batches --prompt 32768
One process runs one engine after the other, with the same streams and the same prompt; results and
machine are in docs/benchmarks/mixed-batches.md.
"""

import os
import platform
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from bench.engine.cpu_engine import REFERENCE
from pando_worker.messages import Abort, Generate, Outputs, SamplingParams
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.scheduler.assembly import make_scheduler
from pando_worker.settings import WorkerSettings

STREAMS = 8
WARM_TOKENS = 20  # of each stream, before the prompt arrives

WAYS: dict[str, dict[str, object]] = {
    "whole prompt in one step": {"batching": "prefill-first", "chunked_prefill_size": 10**6},
    "chunks, prompts first": {"batching": "prefill-first", "chunked_prefill_size": 512},
    "chunks, mixed with the streams": {"batching": "decode-first", "chunked_prefill_size": 512},
}


@dataclass(frozen=True, slots=True)
class Seen:
    gaps_ms: list[float]  # between two tokens of a stream, during the prompt
    first_token_s: float  # of the long prompt


@click.command()
@click.option("--prompt", type=click.IntRange(64), default=8192, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
def main(prompt: int, threads: int) -> None:
    """Measure inter-token latency of eight streams while a long prompt is prefilled."""
    with tempfile.TemporaryDirectory() as scratch:
        _save_model(Path(scratch), prompt + 1024)
        rows = {way: _measure(Path(scratch), prompt, threads, way) for way in WAYS}
    click.echo(f"{STREAMS} streams, a prompt of {prompt} tokens, {threads} threads,")
    click.echo(f"torch {torch.__version__}, {platform.processor() or platform.machine()},")
    click.echo(f"{os.cpu_count()} cores\n")
    click.echo("| | p50 ms | p99 ms | longest ms | first token of the prompt, s |")
    click.echo("|---|---|---|---|---|")
    for way, seen in rows.items():
        p50, p99 = np.percentile(seen.gaps_ms, [50, 99])
        longest = max(seen.gaps_ms)
        click.echo(f"| {way} | {p50:.1f} | {p99:.1f} | {longest:.0f} | {seen.first_token_s:.2f} |")


def _save_model(path: Path, context: int) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(**REFERENCE | {"max_position_embeddings": context})
    AutoModelForCausalLM.from_config(config).save_pretrained(path)


def _measure(model_dir: Path, prompt: int, threads: int, way: str) -> Seen:
    settings = WorkerSettings.model_validate(
        {"model": str(model_dir), "threads": threads, "memory_gib": 4, **WAYS[way]}
    )
    model = TorchModelRunner(settings)
    runner = ThreadedRunner(model)
    scheduler = make_scheduler(settings, model.pools, runner)
    rng = random.Random(0)

    def send(rid: str, length: int, new_tokens: int) -> None:
        ids = [rng.randrange(4096) for _ in range(length)]
        sampling = SamplingParams(max_new_tokens=new_tokens, temperature=0)
        scheduler.receive(Generate(rid=rid, input_ids=ids, sampling=sampling))

    last: dict[str, float] = {}
    gaps: list[float] = []
    sent, first = 0.0, None
    produced = 0
    for index in range(STREAMS):
        send(f"stream {index}", 64, 900)
    behind: set[str] = set()  # streams without a token since the prompt's first one
    while first is None or behind:
        events = scheduler.step()
        now = time.perf_counter()
        for event in events:
            for output in event.outputs if isinstance(event, Outputs) else ():
                if output.rid == "long":
                    first = now - sent
                    behind = set(last)
                    continue
                behind.discard(output.rid)
                if sent:
                    gaps.append(1000 * (now - last[output.rid]))
                last[output.rid] = now
                produced += 1
        if not sent and produced >= STREAMS * WARM_TOKENS:
            sent = time.perf_counter()
            send("long", prompt, 1)
    for rid in last:
        scheduler.receive(Abort(rid=rid))
    while not scheduler.is_idle:
        scheduler.step()
    runner.close()
    return Seen(gaps, first)


if __name__ == "__main__":
    main()
