"""The command `pando demo`: runs a fleet for each policy in turn and shows both in a table.

Imports nothing that only a fleet needs, so that mistakes are reported before that loads.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import click

from pando.demo.errors import DemoError
from pando.demo.settings import DemoSettings
from pando.logs import LogSettings
from pando.redact import redact
from pando.up.free_port import free_port
from pando.up.models import ModelMissingError, model_path
from pando.up.part import PartError
from pando.up.plan import UpPlan, UpPlanError
from pando.up.relay import log_relay
from pando.up.session import in_fleet
from pando.up.signals import EndSignals, end_signals

if TYPE_CHECKING:
    from pando.demo.measure import Outcome
    from pando.up.fleet import Fleet

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
    outcomes: dict[str, Outcome] = {}
    try:
        for policy in POLICIES:
            outcome = asyncio.run(_measure(settings, log, policy, signals))
            if outcome is None:  # Ctrl-C
                return 130
            outcomes[policy] = outcome
    except (ModelMissingError, UpPlanError, PartError, DemoError) as error:
        click.echo(f"pando demo: {redact(str(error))}", err=True)
        return 1
    from pando.demo.result import show

    return show(outcomes["round_robin"], outcomes["cache_aware"], KV_TOKENS)


async def _measure(
    settings: DemoSettings, log: LogSettings, policy: str, signals: EndSignals
) -> "Outcome | None":
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
    return await in_fleet(plan, log_relay(log), partial(_work, policy=policy), signals)


async def _work(fleet: "Fleet", policy: str) -> "Outcome":
    from pando.demo.conversations import conversations
    from pando.demo.measure import hold_all

    took = await fleet.ready()
    load = conversations()
    count, turns = len(load), len(load[0].questions)
    click.echo(
        f"{policy}: ready in {max(took.values()):.1f} s, now {count} conversations of {turns} turns"
    )
    return await hold_all(fleet.router, fleet.model, load)
