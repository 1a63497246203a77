"""`pando up` itself: from its settings to a fleet that serves until a signal ends it."""

import asyncio
from secrets import token_hex
from typing import TYPE_CHECKING

import click

from pando.logs import LogSettings
from pando.redact import redact
from pando.settings.load import Passed, Sources
from pando.up.models import ModelMissingError, model_path
from pando.up.part import PartError
from pando.up.plan import UpPlan, UpPlanError
from pando.up.relay import log_relay
from pando.up.session import in_fleet
from pando.up.settings import UpSettings
from pando.up.signals import EndSignals, end_signals

if TYPE_CHECKING:
    from pando.up.fleet import Fleet


def run(settings: UpSettings, log: LogSettings, sources: Sources[UpSettings]) -> int:
    """Serve until a signal. Returns the exit code: 0 after it, 1 when serving cannot start.

    Raises SettingsError for wrong options or variables of the workers or the router.
    """
    with end_signals() as signals:
        return _run(settings, log, sources.passed, signals)


def _run(settings: UpSettings, log: LogSettings, passed: Passed, signals: EndSignals) -> int:
    try:
        plan = UpPlan(
            model=model_path(settings.model),
            workers=settings.workers,
            host=settings.host,
            port=settings.port,
            redis=settings.redis,
            drain_seconds=settings.drain_seconds,
            tag=f"-{token_hex(3)}" if settings.redis else "",
            log_level=log.level,
            worker=passed["worker"],
            router=passed["router"],
            chat_page=True,
        )
        asyncio.run(in_fleet(plan, log_relay(log), _serve, signals))
    except (ModelMissingError, UpPlanError, PartError) as error:
        click.echo(f"pando up: {redact(str(error))}", err=True)
        return 1
    return 0


async def _serve(fleet: "Fleet") -> None:
    # Imported here: rich takes long, and the fleet has started by now.
    from rich.console import Console

    from pando.up.display import show_table, welcome

    console = Console()
    async with asyncio.TaskGroup() as tasks:
        if console.is_terminal:
            tasks.create_task(show_table(fleet.router, console))
        seconds = await fleet.ready()
        text = welcome(
            fleet.router.url, fleet.model, seconds, chats=fleet.chats, with_key=fleet.needs_key
        )
        console.print(text, soft_wrap=True, highlight=False, markup=False)
        await asyncio.Event().wait()
