"""The command `pando sim`, with its subcommands `compare`, `calibrate` and `prove`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pando.logs import LogSettings, configure
from pando.settings.load import SettingsError
from pando.settings.options import settings_command
from pando.up.signals import EndSignals, end_signals
from pando.usage import StrictCommand, closest
from pando_fleet.distribution import version
from pando_sim.settings import ALL, SimSettings

if TYPE_CHECKING:
    from pando.sim.plan import SimPlan
    from pando_sim.report import About, Digest

REPORT = "report.html"
LEAST_WIDTH = 110  # characters per line when the output is not a terminal

_COMPARE = """Compare all policies, Pando's own and those of other routers, on one trace.

The same as pando sim --policy all. With --scaling but without --policy it compares these scalings
with Pando's own policy: --scaling all means the operator, Kubernetes' and Knative's autoscaler.
With --sessions but without --policy it compares the rules for agents' sessions (--session-rule):
without --pool for half an hour on 4 replicas of 1,500,000 tokens, as in docs/agents.md."""

SESSION_POOL = {
    "session_hours": 0.5,
    "replicas": 4,
    "capacity_tokens": 1_500_000,
    "context_length": 200_000,
}
"""Of docs/agents.md. Most of its agents were recorded with models of this context length."""


def sim_command() -> click.Command:
    main = settings_command("sim", SimSettings, lambda settings, log, _: run(settings, log))
    return _WithParts(
        "sim",
        callback=main.callback,
        params=main.params,
        help=main.help,
        epilog=main.epilog,
        context_settings=main.context_settings,
    )


class _WithParts(StrictCommand):
    """A command whose first argument may name a subcommand: `pando sim compare TRACE`. Write
    `./compare` for a trace of that name."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        if args and args[0] in _PARTS:
            part = _PARTS[args[0]]()
            return part.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        first = args[0] if args else ""
        context = super().make_context(info_name, args, parent, **extra)
        is_trace = "/" in first or Path(first).exists()
        if not is_trace and (meant := closest(first, _PARTS)):
            raise click.UsageError(
                f"there is neither a trace nor a command {first}; did you mean {meant}?", context
            )
        return context


def _compare() -> click.Command:
    command = settings_command(
        "compare", SimSettings, lambda settings, log, _: run(all_of(settings), log)
    )
    command.help = _COMPARE
    return command


def _calibrate() -> click.Command:
    from pando.sim.calibrate import command

    return command


def _prove() -> click.Command:
    from pando.sim.prove import prove_command

    return prove_command()


_PARTS: dict[str, Callable[[], click.Command]] = {
    "compare": _compare,
    "calibrate": _calibrate,
    "prove": _prove,
}


def all_of(settings: SimSettings) -> SimSettings:
    """The settings with all policies if none was named; for sessions, with all their rules."""
    named = settings.model_fields_set
    if "policy" in named or settings.scaling:
        return settings
    if settings.sessions is None or "bound_sessions" in named:
        return settings.model_copy(update={"policy": (ALL,)})
    pool = SESSION_POOL if settings.pool is None else {}
    update = {name: value for name, value in pool.items() if name not in named}
    return settings.model_copy(update={"session_rule": (ALL,), **update})


def run(settings: SimSettings, log: LogSettings) -> int:
    """Returns the exit code: 0 if all runs finished, 1 if one failed, 130 after Ctrl-C.

    Raises SettingsError if these settings cannot be simulated.
    """
    with end_signals() as signals:
        return _run(settings, log, signals)


def _run(settings: SimSettings, log: LogSettings, signals: EndSignals) -> int:
    from pando.sim.errors import SimPlanError
    from pando.sim.plan import make_plan

    try:
        plan = make_plan(settings)
    except SimPlanError as error:
        raise SettingsError(str(error)) from None
    return _play(settings, log, plan, signals)


def _play(settings: SimSettings, log: LogSettings, plan: "SimPlan", signals: EndSignals) -> int:
    from pando.sim.output import OutputError, filled_at_the_end
    from pando.sim.runs import Interrupted, RunError

    try:
        about = _about(settings, plan)
        with filled_at_the_end(settings.output) as folder:
            digests = _simulate(settings, log, plan, folder, signals)
            _write(folder, about, digests)
    except OutputError as error:
        raise SettingsError(f"--output {error}") from None
    except Interrupted:
        return 130
    except RunError as error:
        click.echo(f"pando sim: {error}", err=True)
        return 1
    except OSError as error:
        click.echo(f"pando sim: cannot write to {settings.output}: {error.strerror}", err=True)
        return 1
    _show(about, digests, plan, settings.output / REPORT)
    return 0


def _simulate(
    settings: SimSettings, log: LogSettings, plan: "SimPlan", folder: Path, signals: EndSignals
) -> "list[Digest]":
    from pando.sim.plan import jobs
    from pando.sim.progress import bars
    from pando.sim.runs import run_all
    from pando.sim.work import digested

    tasks = [replace(task, csv=folder if settings.csv else None) for task in plan.tasks]
    names = [task.name for task in tasks]
    with bars(names, plan.extent.requests, plan.extent.last_s) as shown:
        return run_all(tasks, jobs(settings), signals, shown, digested, partial(configure, log))


def _write(folder: Path, about: "About", digests: "list[Digest]") -> None:
    from pando_sim.report import write_results
    from pando_sim.report.page.page import write_page

    write_results(folder / "results.json", about, digests)
    write_page(folder / REPORT, about, digests)


def _show(about: "About", digests: "list[Digest]", plan: "SimPlan", page: Path) -> None:
    from rich.console import Console

    from pando_sim.report import comparison_table

    console = Console()
    if not console.is_terminal:
        console = Console(width=LEAST_WIDTH)
    console.print(comparison_table(about, digests))
    for line in _endings(plan, page):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _endings(plan: "SimPlan", page: Path) -> Iterator[str]:
    """The lines below the table."""
    unplayed = plan.trace.unplayed
    if unplayed.lines:
        yield f"Skipped lines of the trace: {unplayed.lines.total():,}"
        for reason, count in unplayed.lines.most_common():
            yield f"  {count:,}: {reason}"
        yield f"  the first one is {unplayed.first}"
    yield f"The report is {page}"


def _about(settings: SimSettings, plan: "SimPlan") -> "About":
    from pando.sim.plan import command_of
    from pando_sim.report import About
    from pando_sim.report.measures import span

    gpus = plan.pool.spec.tensor_parallel_size
    sizes = {task.spec.replicas for task in plan.tasks if task.spec.scaling == "none"}
    bounds = plan.pool.spec.scaling
    if len(sizes) == len({task.spec.scaling for task in plan.tasks}) == 1:
        size = f"{min(sizes)} replicas"
    else:
        size = f"{bounds.min_replicas} to {bounds.max_replicas} replicas"
    length = span(plan.extent.last_s)
    load = f"{settings.sessions} sessions at once for {length}"
    if plan.extent.requests is not None:
        load = f"{plan.extent.requests:,} requests in {length}"
    return About(
        command=command_of(settings),
        pando_version=version(),
        trace=", ".join(settings.trace),
        trace_summary=f"{plan.trace.paths[0].name.partition('.')[0]}: {load}",
        unplayed=dict(plan.trace.unplayed.lines.most_common()),
        pool=str(settings.pool) if settings.pool else "no manifest",
        pool_summary=f"{size}, {plan.cost.file.model}, {plan.cost.file.machine}",
        cost_model=f"{plan.cost.name}: {plan.cost.source}",
        seed=settings.seed,
        slow_ttft_s=settings.slow_ttft_seconds,
        slow_gap_s=settings.slow_gap_seconds,
        gpus_per_replica=gpus,
    )
