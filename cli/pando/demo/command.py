"""The command `pando demo`: runs a fleet for each policy in turn and shows both in a table."""

import asyncio
from functools import partial

import click
from rich.console import Console
from rich.table import Table

from pando.demo.conversations import conversations
from pando.demo.measure import DemoError, Outcome, hold_all
from pando.demo.settings import DemoSettings
from pando.logs import LogSettings
from pando.redact import redact
from pando.up.fleet import Fleet
from pando.up.free_port import free_port
from pando.up.models import ModelMissingError, model_path
from pando.up.part import PartError
from pando.up.plan import UpPlan, UpPlanError
from pando.up.relay import log_relay
from pando.up.session import in_fleet
from pando.up.signals import EndSignals, end_signals

HOST = "127.0.0.1"
KV_TOKENS = 12_000  # of each worker: two of them hold every prompt once, but not twice
POLICIES = ("round_robin", "cache_aware")


def run(settings: DemoSettings, log: LogSettings) -> int:
    """Returns the exit code: 0 if cache-aware routing was better, 1 if not, or after a failure.

    Raises SettingsError for invalid variables of the workers or the router.
    """
    with end_signals() as signals:
        return _run(settings, log, signals)


def _run(settings: DemoSettings, log: LogSettings, signals: EndSignals) -> int:
    console = Console()
    outcomes: dict[str, Outcome] = {}
    try:
        for policy in POLICIES:
            outcome = asyncio.run(_measure(settings, log, policy, console, signals))
            if outcome is None:  # Ctrl-C
                return 130
            outcomes[policy] = outcome
    except (ModelMissingError, UpPlanError, PartError, DemoError) as error:
        click.echo(f"pando demo: {redact(str(error))}", err=True)
        return 1
    console.print(_table(outcomes))
    return _verdict(outcomes["round_robin"], outcomes["cache_aware"], console)


async def _measure(
    settings: DemoSettings, log: LogSettings, policy: str, console: Console, signals: EndSignals
) -> Outcome | None:
    """Measure a policy in its own fleet, which starts with empty caches."""
    plan = UpPlan(
        model=model_path(settings.model),
        workers=settings.workers,
        host=HOST,
        port=free_port(HOST),
        redis=None,
        drain_seconds=0,
        log_level="warning",  # this command does not show what the parts do in detail
        policy=policy,
        max_total_tokens=KV_TOKENS,
    )
    work = partial(_work, policy=policy, console=console)
    return await in_fleet(plan, log_relay(log), work, signals)


async def _work(fleet: Fleet, policy: str, console: Console) -> Outcome:
    took = await fleet.ready()
    load = conversations()
    count, turns = len(load), len(load[0].questions)
    console.print(
        f"{policy}: ready in {max(took.values()):.1f} s, now {count} conversations of {turns} turns"
    )
    return await hold_all(fleet.router, fleet.model, load)


def _table(outcomes: dict[str, Outcome]) -> Table:
    table = Table(
        title="the same conversations, two ways to choose a replica",
        caption=f"{KV_TOKENS:,} KV tokens a worker: together they hold it all once, not twice",
    )
    table.add_column("policy")
    for column in ("prompt", "cached", "share", "TTFT mean", "TTFT p99", "total"):
        table.add_column(column, justify="right")
    for policy, outcome in outcomes.items():
        table.add_row(
            policy,
            f"{outcome.prompt_tokens:,}",
            f"{outcome.cached_tokens:,}",
            f"{outcome.hit_rate:.0%}",
            f"{1000 * outcome.mean_ttft_s:.0f} ms",
            f"{1000 * outcome.p99_ttft_s:.0f} ms",
            f"{outcome.seconds:.1f} s",
        )
    return table


def _verdict(round_robin: Outcome, cache_aware: Outcome, console: Console) -> int:
    more_cached = cache_aware.hit_rate > round_robin.hit_rate
    sooner = cache_aware.mean_ttft_s < round_robin.mean_ttft_s
    if more_cached and sooner:
        ratio = round_robin.mean_ttft_s / cache_aware.mean_ttft_s
        console.print(f"cache_aware is better: first tokens {ratio:.1f} times sooner in the mean")
        return 0
    console.print("cache_aware is not better than round_robin here")
    return 1
