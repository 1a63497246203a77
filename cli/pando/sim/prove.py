"""`pando sim prove`: replays a recorded period as it was served, and compares the two."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from pando.logs import LogSettings, configure
from pando.settings.load import SettingsError
from pando.settings.options import settings_command
from pando.sim.errors import SimPlanError
from pando.sim.plan import Task, make_plan
from pando.sim.progress import bars
from pando.sim.runs import Interrupted, RunError, run_all
from pando.up.signals import EndSignals, end_signals
from pando_sim.policies import POLICIES
from pando_sim.proof import Measures, Period, Proof, prove, recorded, replayed
from pando_sim.proof.proof import NAMES, shown
from pando_sim.records import Run
from pando_sim.settings import NO_SCALING, SimSettings
from pando_sim.traces import TraceError

LEAST_WIDTH = 110  # characters per line when the output is not a terminal
AS_RECORDED = ("take", "repeat", "speed", "day_hours", "adapters", "fault", "sessions", "scaling")
"""Settings that play something else than what was recorded."""

_HELP = """Replay a recording as it was served, and compare the replay with what was recorded.

TRACE is a recording of routers (pando record). It is replayed with the placement policy and the
replicas that it begins with, and with the scaling of the --pool manifest. Replicas, hit rate,
refusals, times to the first token and between tokens must agree within stated bounds
(docs/tuning.md); the exit code is 1 if they do not."""


def prove_command() -> click.Command:
    command = settings_command("prove", SimSettings, lambda settings, log, _: run(settings, log))
    command.help = _HELP
    return command


def run(settings: SimSettings, log: LogSettings) -> int:
    """Returns the exit code: 0 if the replay agrees, 1 if not, 130 after Ctrl-C.

    Raises SettingsError if there is nothing to compare.
    """
    for name in AS_RECORDED:
        if getattr(settings, name) != SimSettings.model_fields[name].default:
            raise SettingsError(
                f"--{name.replace('_', '-')} changes what is played, and only the recorded period"
                " itself can be compared: leave it out"
            )
    with end_signals() as signals:
        try:
            proof = proof_of(settings, log, signals)
        except SimPlanError as error:
            raise SettingsError(str(error)) from None
        except Interrupted:
            return 130
        except RunError as error:
            click.echo(f"pando sim prove: {error}", err=True)
            return 1
    show(proof, Console())
    return 0 if proof.holds else 1


def proof_of(
    settings: SimSettings, log: LogSettings, signals: EndSignals, beat_s: float | None = None
) -> Proof:
    """Replays the recording in a process of its own; plays it as it is, whatever AS_RECORDED says.

    Args:
        beat_s: between two heartbeats; None: as real workers send them.

    Raises SimPlanError, RunError, Interrupted.
    """
    paths = [Path(name) for name in settings.trace]
    try:
        period = recorded(paths, settings.trace_model)
    except TraceError as error:
        raise SimPlanError(" ".join(str(error).split())) from None
    played = {name: SimSettings.model_fields[name].default for name in AS_RECORDED}
    # The policy may be another router's: only a recording without any leaves it to the settings.
    played["policy"] = (_policy(period),) if period.policy is not None else settings.policy[:1]
    plan = make_plan(settings.model_copy(update=played))
    task = _as_served(plan.tasks[0], period, beat_s)
    summary = partial(_measures, skip_s=period.measures.skip_s)
    extent = plan.extent
    with bars(["replay of the recording"], extent.requests, extent.last_s) as progress:
        (found,) = run_all([task], 1, signals, progress, summary, partial(configure, log))
    return prove(period.measures, found)


def show(proof: Proof, console: Console) -> None:
    """Prints both sides, and what the simulator does not predict."""
    if not console.is_terminal:
        console.width = LEAST_WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for column in ("recorded", "replayed", "may differ by", ""):
        table.add_column(column, justify="right")
    for row in proof.rows:
        verdict = {True: "predicted", False: "not predicted", None: "unknown"}[row.holds]
        numbers = (row.recorded, row.replayed, row.allowed)
        table.add_row(NAMES[row.name], *(shown(row.name, one) for one in numbers), verdict)
    console.print(table)
    for why in proof.failures:
        console.print(why, soft_wrap=True, highlight=False, markup=False)


def _policy(period: Period) -> str:
    assert period.policy is not None
    if period.policy not in POLICIES:
        raise SimPlanError(
            f"the recording's placement policy is {period.policy!r}, which this release lacks"
        )
    return period.policy


def _as_served(task: Task, period: Period, beat_s: float | None) -> Task:
    """The run that begins with as many replicas as the recording."""
    spec, bounds = task.spec, task.pool.spec.scaling
    if period.replicas:
        replicas = period.replicas
        if spec.scaling != NO_SCALING:
            replicas = min(max(replicas, bounds.min_replicas), bounds.max_replicas or replicas)
        spec = replace(spec, replicas=replicas)
    if beat_s is not None:
        spec = replace(spec, worker=replace(spec.worker, beat_s=beat_s))
    return replace(task, spec=spec, csv=None)


def _measures(_: Task, ran: Run, *, skip_s: float) -> Measures:
    return replayed(ran, skip_s=skip_s)
