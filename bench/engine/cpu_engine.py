"""Pando's engine against the transformers library on CPU: the same prompts, in turns, in one run.

Run: python -m bench.engine.cpu_engine
Every engine has its own process and runs each job once per repetition, so that noise affects all
alike. Pando runs through its scheduler. Results and definitions: docs/benchmarks/engine.md.
"""

import logging
import os
import platform
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig, LlamaConfig

from bench.engine.engines import pando, transformers_engines
from bench.engine.engines.contestant import Contestant, Job, MakeEngine, Outcome
from bench.engine.engines.report import Race, markdown, timed
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.packaged import PACKAGED
from pando_worker.server.machine import machine

SHIPPED = Path(__file__).parents[2] / "examples/models/pando-tiny"
REFERENCE: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 688,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}
BASELINE = "generate"
ENGINES = {
    BASELINE: (transformers_engines.generate, {}),
    "generate, compiled": (transformers_engines.compiled, {}),
    "generate_batch": (transformers_engines.generate_batch, {}),
    "pando": (pando.overlapped, pando.ENVIRONMENT),
    "pando, no overlap": (pando.sequential, pando.ENVIRONMENT),
    "pando, int8": (pando.with_bytes, pando.ENVIRONMENT),
    "pando, no kernels": (pando.without_kernels, pando.ENVIRONMENT),
}


@dataclass(frozen=True, slots=True)
class Workload:
    requests: int
    prompt_tokens: int
    shared_tokens: int  # of each prompt, the same for all
    new_tokens: int

    @property
    def name(self) -> str:
        share = self.shared_tokens / self.prompt_tokens
        shared = f", {share:.0%} shared" if share else ""
        return f"{self.requests} x {self.prompt_tokens}{shared}, {self.new_tokens} new"

    def job(self, vocab_size: int, seed: str) -> Job:
        rng = random.Random(f"{self.name} {seed}")

        def ids(count: int) -> list[int]:
            return [rng.randrange(vocab_size) for _ in range(count)]

        shared = ids(self.shared_tokens)
        own = self.prompt_tokens - self.shared_tokens
        return Job([shared + ids(own) for _ in range(self.requests)], self.new_tokens)


WORKLOADS = {
    "1": Workload(1, 64, 0, 128),
    "8": Workload(8, 64, 0, 128),
    "32": Workload(32, 64, 0, 128),
    "shared": Workload(32, 1024, 820, 128),
}


@click.command()
@click.option("--models", default="reference,shipped", show_default=True)
@click.option("--workloads", default=",".join(WORKLOADS), show_default=True)
@click.option(
    "--engine",
    "chosen",
    multiple=True,
    type=click.Choice(list(ENGINES)),
    help="only these engines; may be repeated; generate always runs",
)
@click.option("--repetitions", type=click.IntRange(1), default=7, show_default=True)
@click.option(
    "--all-passive",
    is_flag=True,
    help="let idle threads of every engine sleep, as Pando's do; torch's default spins, which is"
    " faster on idle cores and ruinous on busy ones",
)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="file for the result as JSON"
)
def main(
    models: str,
    workloads: str,
    chosen: tuple[str, ...],
    repetitions: int,
    all_passive: bool,
    threads: int,
    output: Path | None,
) -> None:
    """Race Pando's CPU engine against transformers."""
    logging.basicConfig(level=logging.WARNING)
    names = [name for name in ENGINES if not chosen or name in chosen or name == BASELINE]
    common = pando.ENVIRONMENT if all_passive else {}
    engines = {name: (make, common | own) for name, (make, own) in ENGINES.items() if name in names}
    picked = [_workload(name) for name in workloads.split(",")]
    races: list[Race] = []
    with tempfile.TemporaryDirectory() as scratch:
        for model in models.split(","):
            path = _model(model, Path(scratch))
            races += race(model, path, engines, picked, repetitions, threads)
    click.echo(markdown(races, BASELINE))
    click.echo(
        f"\n{described(threads)}; {repetitions} repetitions{', all passive' if all_passive else ''}"
    )
    if output is not None:
        result = {"machine": described(threads), "races": races}
        output.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")


def race(
    model: str,
    path: Path,
    engines: Mapping[str, tuple[MakeEngine, dict[str, str]]],
    workloads: Sequence[Workload],
    repetitions: int,
    threads: int,
) -> Iterator[Race]:
    """Runs all engines on all workloads, each after a job that warms up. The engines are made anew
    for each workload: transformers' continuous batching fits its memory to the first job, and after
    a first job of one request it takes four times as long for eight."""
    vocab_size = AutoConfig.from_pretrained(path).vocab_size
    for workload in workloads:
        with ExitStack() as stack:
            contestants = [
                stack.enter_context(Contestant(name, make, path, threads, environment))
                for name, (make, environment) in engines.items()
            ]
            for contestant in contestants:
                contestant.run(workload.job(vocab_size, "warm-up"))
            outcomes: dict[str, list[Outcome]] = {name: [] for name in engines}
            for repetition in range(repetitions):
                job = workload.job(vocab_size, str(repetition))
                for contestant in contestants:
                    outcomes[contestant.name].append(contestant.run(job))
        yield _race(model, workload, outcomes)


def _race(model: str, workload: Workload, outcomes: dict[str, list[Outcome]]) -> Race:
    first = outcomes[BASELINE]
    results = {}
    for name, mine in outcomes.items():
        pairs = [
            pair
            for a, b in zip(first, mine, strict=True)
            for pair in zip(a.tokens, b.tokens, strict=True)
        ]
        short = [len(b) for _, b in pairs if len(b) != workload.new_tokens]
        if short:
            raise click.ClickException(f"{name} gave {short} tokens, not {workload.new_tokens}")
        results[name] = timed(
            mine,
            first,
            workload.requests * workload.new_tokens,
            sum(a == b for a, b in pairs) / len(pairs),
        )
    return Race(
        model=model,
        workload=workload.name,
        requests=workload.requests,
        prompt_tokens=workload.prompt_tokens,
        new_tokens=workload.new_tokens,
        engines=results,
    )


def _workload(name: str) -> Workload:
    if name not in WORKLOADS:
        raise click.UsageError(f"unknown workload {name!r}; choose from {', '.join(WORKLOADS)}")
    return WORKLOADS[name]


def _model(name: str, scratch: Path) -> Path:
    """The directory of `reference` (written with random weights), `shipped`, a model that comes as
    a package (decoded to float32, which all engines read), or any other model."""
    if name == "shipped":
        return SHIPPED
    if name in PACKAGED:
        return _decoded(resolve_model(name), scratch / name)
    if name != "reference":
        return Path(name)
    path = scratch / "reference"
    if not path.exists():
        torch.manual_seed(0)
        config = LlamaConfig(**REFERENCE)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(path)
    return path


def _decoded(packaged: Path, path: Path) -> Path:
    """A GGUF model as a checkpoint of float32 weights, by transformers."""
    [file] = (link.resolve() for link in packaged.glob("*.gguf"))
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(path)
    return path


def described(threads: int) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{machine('cpu', 1)}, {threads} threads, load averages at the end {load};"
        f" Python {platform.python_version()}, torch {torch.__version__}"
    )


if __name__ == "__main__":
    sys.exit(main())
