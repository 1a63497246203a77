"""Before any advice, proof: a recording is replayed as it was served, and must show the same."""

import click
from rich.console import Console

from pando.logs import LogSettings
from pando.sim import prove
from pando.sim.errors import SimPlanError
from pando.tune.plan import BEAT_S, TunePlan, TunePlanError
from pando.tune.settings import TuneSettings
from pando.up.signals import EndSignals
from pando_sim.proof import recorded
from pando_sim.traces.formats import RECORDING


def prove_first(
    settings: TuneSettings, log: LogSettings, plan: TunePlan, signals: EndSignals
) -> float | None:
    """Shows both on standard error; returns the recorded hit rate, if there is one. A search that
    goes on was proven before it began, so only what was recorded is read again.

    Raises TunePlanError if they differ, unless `anyway` is set; RunError, Interrupted.
    """
    is_recording = plan.planned.trace.format is RECORDING
    if settings.resume:
        if not is_recording:
            return None
        return recorded(plan.planned.trace.paths, settings.trace_model).measures.hit_rate
    if not is_recording:
        click.echo(
            f"{settings.trace[0]} is no recording of routers, so nothing shows whether the"
            " simulator predicts this cluster",
            err=True,
        )
        return None
    try:
        proof = prove.proof_of(plan.sim, log, signals, beat_s=BEAT_S)
    except SimPlanError as error:
        raise TunePlanError(str(error)) from None
    prove.show(proof, Console(stderr=True))
    if not proof.holds and not settings.anyway:
        raise TunePlanError(
            f"the simulator does not predict this recording ({len(proof.failures)} of the numbers"
            " above), so its advice would be a guess: --anyway searches all the same"
        )
    return proof.recorded.hit_rate
