"""A fleet of two CPU workers for each rule, one after the other."""

import asyncio
import os
import time
from dataclasses import dataclass
from math import nan
from statistics import quantiles

import click

from bench.fleet.agents.agent import Call
from bench.fleet.agents.crowd import Crowd, Seen
from bench.fleet.serving.fleets import pando_up
from pando_worker.server.machine import machine

WARM_S = 15.0
RULES = {"no bound": "false", "bound": "true"}


@dataclass(frozen=True, slots=True)
class Found:
    seen: Seen
    calls: list[Call]  # answered in the measured time
    seconds: float

    def row(self, rule: str) -> str:
        later = [call.ttft_s for call in self.calls if call.number]
        first = [call.ttft_s for call in self.calls if not call.number]
        hits = sum(call.cached_tokens for call in self.calls)
        tokens = sum(call.prompt_tokens for call in self.calls)
        left = [1000 * gone_s for gone_s in self.seen.left_s]
        gave_up = f"{len(left)}, after {max(left):.0f} ms" if left else "0"
        cells = (
            f"{60 * len(self.calls) / self.seconds:.0f}",
            f"{hits / tokens if tokens else nan:.3f}",
            *(f"{percentile(first, share):.1f} s" for share in (50, 99)),
            *(f"{percentile(later, share):.2f} s" for share in (50, 99)),
            str(len(self.seen.lost)),
            gave_up,
        )
        return f"| {rule} | {' | '.join(cells)} |"


def percentile(values: list[float], share: int) -> float:
    """nan of fewer than two."""
    return quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else nan


@click.command()
@click.option("--model", default="tiny", show_default=True, help="as pando up takes it")
@click.option("--sessions", default=40, show_default=True, help="at once")
@click.option("--pool-tokens", default=16384, show_default=True, help="of a worker")
@click.option(
    "--rule", "rules", multiple=True, type=click.Choice(list(RULES)), help="default: both"
)
@click.option("--seconds", default=60.0, show_default=True, help="measured, of each rule")
def main(
    model: str, sessions: int, pool_tokens: int, rules: tuple[str, ...], seconds: float
) -> None:
    """Calls a minute of agents' sessions without and with the bound on sessions.

    Lost calls are those that OpenAI's client gave up after its retries. Clients that gave up left
    the router's queue after the time shown (the longest).
    """
    click.echo(
        "| | calls a minute | hit rate | first TTFT p50 | p99 | later TTFT p50 | p99 | lost"
        " | gave up in the queue |"
    )
    click.echo("|---|" + 8 * "---:|")
    for rule in rules or RULES:
        options = ["--model", model, "--workers", "2", "--threads", "1"]
        options += ["--max-total-tokens", str(pool_tokens)]
        with pando_up(options, {"PANDO_ROUTER_BOUND_SESSIONS": RULES[rule]}) as url:
            found = asyncio.run(_measure(url, sessions, seconds))
        click.echo(found.row(rule))
        for error in found.seen.lost[:3]:
            click.echo(f"lost: {error}", err=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    click.echo(
        f"\n{sessions} sessions at once, 2 workers of {pool_tokens:,} KV tokens, {model},"
        f" {seconds:g} s after {WARM_S:g} s; {machine('cpu', 1)}; load averages at the end {load}"
    )


async def _measure(url: str, sessions: int, seconds: float) -> Found:
    begin_s = time.monotonic() + WARM_S
    crowd = Crowd(url, sessions, begin_s + seconds)
    await crowd.run()
    if left := crowd.waiting():
        raise click.ClickException(f"the router still has {left:g} requests when all have ended")
    return Found(crowd.seen, crowd.seen.within(begin_s, begin_s + seconds), seconds)


if __name__ == "__main__":
    main()
