"""What a fleet costs: one worker alone, behind a router, and two workers on the same cores.

Run on a quiet machine: python -m bench.fleet.fleet_cost
All of them serve the same model with the same cores and as much KV memory together. They run all
the time, and each job goes to one after the other, so noise hits all alike. Results:
docs/benchmarks/fleet.md.
"""

import logging
import os
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from statistics import median

import click

from bench.fleet.serving import gguf_servers
from bench.fleet.serving.at_once import Job
from bench.fleet.serving.fleets import pando_up
from pando_worker.server.machine import machine

log = logging.getLogger("bench.fleet.fleet_cost")

JOBS = (Job(1, 40, 96), Job(8, 40, 64), Job(32, 40, 64), Job(1, 860, 1))
POOL_TOKENS = 32 * 256  # of all workers of a contestant together


@dataclass(slots=True)
class Contestant:
    """One way to serve, with a value a repetition of each job."""

    name: str
    url: str
    tokens_s: dict[Job, list[float]] = field(default_factory=dict)  # of output, or of the prompt
    ttft_s: dict[Job, list[float]] = field(default_factory=dict)  # the median client's

    def measure(self, job: Job, model: str, seed: str) -> None:
        records, seconds = job.run(self.url, model, seed)
        first, made = records[0], sum(record.output_tokens for record in records)
        rate = first.prompt_tokens / first.ttft if job.is_prefill else made / seconds
        self.tokens_s.setdefault(job, []).append(rate)
        self.ttft_s.setdefault(job, []).append(median(record.ttft for record in records))
        log.info("%s, %s: %.1f s", self.name, job, seconds)


@click.command(help=__doc__)
@click.option("--model", default="smollm2", show_default=True, help="as pando worker takes it")
@click.option("--threads", default=2, show_default=True, help="of all workers of a fleet")
@click.option("--repetitions", default=3, show_default=True)
def main(model: str, threads: int, repetitions: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with ExitStack() as stack:
        pool = ["--max-total-tokens", str(POOL_TOKENS)]
        alone = stack.enter_context(gguf_servers.pando_worker(model, threads, pool))
        fleets = [stack.enter_context(_fleet(model, threads, count)) for count in (1, 2)]
        contestants = [
            Contestant("one worker, no router", alone.url),
            Contestant("a fleet of one", fleets[0]),
            Contestant("a fleet of two", fleets[1]),
        ]
        for contestant in contestants:
            for clients in (1, 8, 32):  # steps of so many rows are recorded now
                Job(clients, 40, 8).run(contestant.url, model, "warm-up")
        for repetition in range(repetitions):
            for job in JOBS:
                for contestant in contestants:
                    contestant.measure(job, model, str(repetition))
        click.echo(_table(contestants))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    click.echo(
        f"\n{model}, {machine('cpu', 1)}, {threads} threads in all; {repetitions} repetitions;"
        f" load averages at the end {load}"
    )


def _fleet(model: str, threads: int, workers: int) -> AbstractContextManager[str]:
    """Its address."""
    options = ["--model", model, "--workers", str(workers)]
    options += ["--threads", str(threads // workers)]
    options += ["--max-total-tokens", str(POOL_TOKENS // workers)]
    return pando_up(options)


def _table(contestants: list[Contestant]) -> str:
    """Medians of the repetitions; in brackets what they are of the first contestant's."""
    names = " | ".join(contestant.name for contestant in contestants)
    rows = [f"| | {names} |", "|---" * (len(contestants) + 1) + "|"]

    def row(what: str, values: list[float], form: str) -> None:
        cells = [f"{values[0]:{form}}"]
        cells += [f"{value:{form}} ({value / values[0]:.2f})" for value in values[1:]]
        rows.append(f"| {what} | {' | '.join(cells)} |")

    for job in JOBS:
        rates = [median(contestant.tokens_s[job]) for contestant in contestants]
        if job.is_prefill:
            row(f"prefill of {job.words} words, tokens/s", rates, ",.0f")
        else:
            row(f"{job.clients} clients, tokens/s", rates, ",.0f")
            firsts = [median(contestant.ttft_s[job]) for contestant in contestants]
            row(f"{job.clients} clients, TTFT p50, s", firsts, ".2f")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
