"""The command `pando tune`."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from pando.logs import LogSettings, configure
from pando.settings.load import SettingsError
from pando.settings.options import settings_command
from pando.tune.settings import TuneSettings
from pando.up.signals import EndSignals, end_signals
from pando_fleet.distribution import version

if TYPE_CHECKING:
    from pando.tune.plan import TunePlan
    from pando_sim.tuning.findings import Findings, TuneAbout


def tune_command() -> click.Command:
    return settings_command("tune", TuneSettings, lambda settings, log, _: run(settings, log))


def run(settings: TuneSettings, log: LogSettings) -> int:
    """Returns the exit code: 0 at the end of the search, 1 if a run failed, 130 after Ctrl-C.

    Raises SettingsError if these settings cannot be searched.
    """
    with end_signals() as signals:
        return _run(settings, log, signals)


def _run(settings: TuneSettings, log: LogSettings, signals: EndSignals) -> int:
    from pando.sim.runs import Interrupted, RunError
    from pando.tune.display import show
    from pando.tune.files import REPORT, write_files
    from pando.tune.noted import annotated, with_hits
    from pando.tune.plan import TunePlanError, make_tune_plan
    from pando.tune.proving import prove_first
    from pando.tune.runs import KnownRunsError

    try:
        plan = make_tune_plan(settings)
        hit_rate = prove_first(settings, log, plan, signals)
        plan = replace(plan, noted=with_hits(plan.noted, hit_rate))
        settings.output.mkdir(parents=True, exist_ok=True)
        findings = _search(settings, log, plan, signals)
        best = findings.point(findings.recommended)
        document = annotated(plan.space.candidate(best.values).document, plan.noted)
        write_files(settings.output, findings, document)
    except (TunePlanError, KnownRunsError) as error:
        raise SettingsError(str(error)) from None
    except Interrupted:
        return 130
    except RunError as error:
        click.echo(f"pando tune: {error}", err=True)
        return 1
    except OSError as error:
        click.echo(f"pando tune: cannot write to {settings.output}: {error.strerror}", err=True)
        return 1
    show(findings, str(settings.output / REPORT))
    return 130 if findings.interrupted else 0


def _search(
    settings: TuneSettings, log: LogSettings, plan: "TunePlan", signals: EndSignals
) -> "Findings":
    from pando.sim.plan import jobs
    from pando.tune.course import Course, Limits
    from pando.tune.crew import Crew
    from pando.tune.display import Display
    from pando.tune.runs import FILE, KnownRuns

    about = _about(settings, plan)
    known = KnownRuns(settings.output / FILE, _name(settings, plan), resume=settings.resume)
    limits = Limits(settings.trials, settings.minutes, jobs(settings), settings.vary)
    display = Display()
    crew = Crew(plan.parts, plan.goal, limits.at_a_time, signals, partial(configure, log))
    try:
        return Course(plan, limits, crew, known, display, settings.seed, about).go()
    finally:
        crew.close()
        display.ends()


def _name(settings: TuneSettings, plan: "TunePlan") -> str:
    """What all runs of a search have in common."""
    own = ("output", "jobs", "resume", "trials", "minutes", "anyway", "search", "only", "vary")
    asked = ("budget", "as_good_as_today")  # of equal runs
    same = settings.model_dump(mode="json", exclude={*own, *asked})
    files = [(path.name, path.stat().st_size) for path in plan.planned.trace.paths]
    return repr((version(), same, files, plan.document))


def _about(settings: TuneSettings, plan: "TunePlan") -> "TuneAbout":
    from pando.sim.plan import command_of
    from pando_sim.tuning.findings import TuneAbout

    return TuneAbout(
        command=command_of(settings, "tune"),
        pando_version=version(),
        trace=", ".join(settings.trace),
        parts=plan.parts.how,
        searched_requests=len(plan.parts.whole),
        tried_on=len(plan.parts.tried.requests),
        checked_on=len(plan.parts.searched.requests),
        judged_requests=len(plan.parts.judged.requests),
        other_requests=len(plan.parts.other),
        pool=str(settings.pool),
        name=plan.planned.pool.name,
        cost_model=f"{plan.planned.cost.name}: {plan.planned.cost.source}",
        seed=settings.seed,
        ttft_p99_s=settings.ttft_p99,
        gap_p99_s=settings.gap_p99,
        budget=settings.budget,
        as_good_as_today=settings.as_good_as_today,
        warning=plan.parts.too_short,
        unplayed=plan.unplayed,
        no_schedules=plan.no_schedules,
    )
