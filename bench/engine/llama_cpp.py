"""Pando's worker against llama.cpp's server on the same GGUF file, with the same client, in turns.

Run: python -m bench.engine.llama_cpp --llama-cpp VENV/bin/python
VENV has the package `xllamacpp`, llama.cpp's server, and nothing of Pando: its binaries bring an
OpenMP of their own. Both servers run all the time, and each job goes to one after the other, so
noise hits both alike.
"""

import logging
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

import click

from bench.fleet.serving import gguf_servers
from bench.fleet.serving.at_once import Job
from bench.fleet.serving.client import Record
from bench.fleet.serving.gguf_servers import GgufServer
from pando_worker.models.loading.hub import resolve_model
from pando_worker.server.machine import machine

log = logging.getLogger("bench.engine.llama_cpp")

PROMPT_WORDS = 40


@dataclass(slots=True)
class Measured:
    """Of one server and job, a value a repetition."""

    tokens_s: list[float] = field(default_factory=list)  # of output, or of the prompt
    ttft_s: list[float] = field(default_factory=list)  # the median client's
    prompt_tokens: int = 0


JOBS = (
    Job(1, PROMPT_WORDS, 96),
    Job(8, PROMPT_WORDS, 64),
    Job(32, PROMPT_WORDS, 64),
    Job(1, 230, 1),  # about 330 tokens
    Job(1, 860, 1),  # about 1,230
)


@click.command(help=__doc__)
@click.option("--llama-cpp", required=True, help="the Python that has xllamacpp")
@click.option("--model", default="smollm2", show_default=True, help="as pando worker takes it")
@click.option("--threads", default=2, show_default=True)
@click.option("--slots", default=32, show_default=True, help="requests at once")
@click.option("--context", default=2048, show_default=True, help="tokens a slot")
@click.option("--repetitions", default=2, show_default=True)
@click.option("--worker-flags", default="--kv-cache-dtype bfloat16", show_default=True)
def main(
    llama_cpp: str,
    model: str,
    threads: int,
    slots: int,
    context: int,
    repetitions: int,
    worker_flags: str,
) -> None:
    """Race both on all jobs, then look at their memory."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    [file, *_] = sorted(resolve_model(model).glob("*.gguf"))
    tokens = slots * context
    with ExitStack() as stack:
        peer = stack.enter_context(
            gguf_servers.llama_cpp(llama_cpp, file.resolve(), threads, slots=slots, context=tokens)
        )
        flags = ["--max-total-tokens", str(tokens), "--memory-gib", "4", *worker_flags.split()]
        ours = stack.enter_context(gguf_servers.pando_worker(model, threads, flags))
        servers = (peer, ours)
        found = {(s.name, job): Measured() for s in servers for job in JOBS}
        for server in servers:
            Job(2, PROMPT_WORDS, 8).run(server.url, model, "warm-up")
        for repetition in range(repetitions):
            for job in JOBS:
                for server in servers:
                    records, seconds = job.run(server.url, model, str(repetition))
                    _note(found[server.name, job], job, records, seconds)
                    log.info("%s, %s: %.1f s", server.name, job, seconds)
        click.echo(_table(servers, found))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    click.echo(
        f"\n{file.name}, {machine('cpu', 1)}, {threads} threads, {slots} x {context} tokens;"
    )
    click.echo(
        f"{repetitions} repetitions; worker: {worker_flags}; load averages at the end {load}"
    )


def _note(measured: Measured, job: Job, records: list[Record], seconds: float) -> None:
    measured.prompt_tokens = records[0].prompt_tokens
    measured.ttft_s.append(median(record.ttft for record in records))
    if job.is_prefill:
        measured.tokens_s.append(records[0].prompt_tokens / records[0].ttft)
    else:
        measured.tokens_s.append(sum(record.output_tokens for record in records) / seconds)


def _table(servers: tuple[GgufServer, GgufServer], found: dict[tuple[str, Job], Measured]) -> str:
    """Medians of the repetitions; the last column is Pando's number over llama.cpp's."""
    rows = ["| | llama.cpp | Pando | ratio |", "|---|---|---|---|"]

    def row(what: str, pair: list[float], form: str) -> None:
        theirs, ours = pair
        rows.append(f"| {what} | {theirs:{form}} | {ours:{form}} | {ours / theirs:.2f} |")

    for job in JOBS:
        pair = [found[server.name, job] for server in servers]
        rates = [median(one.tokens_s) for one in pair]
        if job.is_prefill:
            row(f"prefill of {pair[0].prompt_tokens} tokens, tokens/s", rates, ",.0f")
        else:
            row(f"{job.clients} clients, tokens/s", rates, ",.0f")
            row(f"{job.clients} clients, TTFT p50, s", [median(p.ttft_s) for p in pair], ".2f")
    row("memory (PSS), MiB", [server.memory_mib for server in servers], ",.0f")
    row("ready after, s", [server.ready_s for server in servers], ".1f")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
