"""What text requests pay for a model's vision tower: the CPU engine with and without one.

Run: python -m bench.vision.text_cost
Two engines run the same text jobs in turns: one loads a Llama, the other a LLaVA whose text part
has the same weights. A third one loads the Llama again: its ratio to the first is the noise.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from bench.engine.cpu_engine import WORKLOADS, described
from bench.engine.engines import pando
from bench.engine.engines.contestant import Contestant, Outcome
from bench.engine.engines.report import timed
from bench.vision.models import write_models

BASELINE = "text"


@click.command(help=__doc__)
@click.option("--workload", type=click.Choice(list(WORKLOADS)), default="8", show_default=True)
@click.option("--repetitions", type=click.IntRange(1), default=15, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
def main(workload: str, repetitions: int, threads: int) -> None:
    job = WORKLOADS[workload]
    outcomes: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        text, sees = write_models(Path(scratch))
        contestants = [
            stack.enter_context(
                Contestant(name, pando.overlapped, path, threads, pando.ENVIRONMENT)
            )
            for name, path in ((BASELINE, text), ("text again", text), ("sees", sees))
        ]
        for contestant in contestants:
            contestant.run(job.job(1000, "warm-up"))
            outcomes[contestant.name] = []
        for repetition in range(repetitions):
            # The first of a round may find the machine in another state than the last.
            turn = repetition % len(contestants)
            for contestant in contestants[turn:] + contestants[:turn]:
                found = contestant.run(job.job(1000, str(repetition)))
                outcomes[contestant.name].append(found)
    click.echo(
        "| engine | tokens/s | time of the first's | CPU time of the first's | same tokens |"
    )
    click.echo("|---|---|---|---|---|")
    first = outcomes[BASELINE]
    for name, mine in outcomes.items():
        same = [a.tokens == b.tokens for a, b in zip(first, mine, strict=True)]
        result = timed(mine, first, job.requests * job.new_tokens, sum(same) / len(same))
        click.echo(
            f"| {name} | {result.tokens_per_s:,.0f} | {1 / result.ratio:.3f}"
            f" | {1 / result.cpu_ratio:.3f} | {result.equal:.0%} |"
        )
    click.echo(f"\n{job.name}; {described(threads)}; {repetitions} repetitions")


if __name__ == "__main__":
    sys.exit(main())
