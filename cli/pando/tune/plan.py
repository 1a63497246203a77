"""Plans a search: today's pool, the fields, and the parts of the trace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pando.sim import manifest
from pando.sim.errors import SimPlanError
from pando.sim.fleet import fleet_of, start_s_of
from pando.sim.plan import OPERATOR, SimPlan, make_plan
from pando.tune.noted import noted
from pando.tune.settings import TuneSettings
from pando_operator.resource.tuned_on import TunedOn
from pando_sim.cost import CostModelError, load
from pando_sim.policies.pando import own
from pando_sim.request import Request
from pando_sim.settings import ReplaySettings, SimSettings
from pando_sim.spec import FleetSpec
from pando_sim.traces import TraceError, open_trace
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.knobs import POLICY, Knob, KnobError, asked_knob, scaling_knobs
from pando_sim.tuning.lists import ListField
from pando_sim.tuning.parts import Parts, divided
from pando_sim.tuning.rates import RATES
from pando_sim.tuning.schedules import (
    SCHEDULES,
    DayLoad,
    Schedules,
    schedule_knobs,
    why_none,
)
from pando_sim.tuning.space import Candidate, Space, chosen_knobs

BEAT_S = 2.5
"""The interval of heartbeats; at the worker's own 0.5 s a day would take several times as long."""


class TunePlanError(Exception):
    """These settings cannot be searched; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunePlan:
    goal: Goal
    parts: Parts
    document: dict[str, Any]  # today's manifest
    space: Space
    sim: SimSettings  # of a run of today's manifest
    planned: SimPlan  # the same run
    unplayed: int  # lines of the trace that are left out
    no_schedules: str  # why schedules are not searched; empty if they are, or nobody asked
    noted: TunedOn  # on what it writes

    def fleet(self, candidate: Candidate) -> FleetSpec:
        """Raises SimPlanError if the candidate cannot be simulated."""
        spec = fleet_of(
            self.sim,
            candidate.pool,
            self.planned.cost,
            self.planned.extent,
            candidate.policy,
            OPERATOR,
        )
        return replace(spec, worker=replace(spec.worker, beat_s=BEAT_S))


def make_tune_plan(settings: TuneSettings) -> TunePlan:
    """Reads the whole trace once. Raises TunePlanError."""
    assert settings.pool is not None, "checked with the settings"
    try:
        document = manifest.read_document(settings.pool)
        pool = manifest.read(settings.pool)
        sim = _sim_settings(settings)
        goal = Goal(
            ttft_s=settings.ttft_p99,
            gap_s=settings.gap_p99,
            budget=settings.budget,
            as_today=settings.as_good_as_today,
        )
        most = pool.spec.scaling.max_replicas
        if most is None:
            raise TunePlanError(
                f"--pool {settings.pool}: spec.scaling.maxReplicas is required: it says what you"
                " can pay for at most"
            )
        start_s = start_s_of(settings, load(settings.cost_model))
        schedules = schedule_knobs(pool.spec.scaling.min_replicas, most, start_s)
        rates = tuple(knob for one in RATES for knob in one.knobs(most))
        known = (*scaling_knobs(goal, most), *schedules, *rates)
        asked = [asked_knob(text, known) for text in settings.search]
        knobs = chosen_knobs(known, asked, settings.only, document)
        if any(knob.path == POLICY for knob in knobs) and settings.policy not in [
            kind.name for kind in own()
        ]:
            raise TunePlanError(
                f"--policy {settings.policy} is not Pando's, and cannot be searched"
            )
        _check_has_times(settings)
        requests: list[Request] = []
        planned = make_plan(sim, requests.append)
        parts = divided(requests, settings.seed, settings.excerpt)
    except (
        manifest.ManifestError,
        CostModelError,
        KnobError,
        SimPlanError,
        TraceError,
    ) as error:
        raise TunePlanError(" ".join(str(error).split())) from None
    no_schedules = _no_schedules(settings, planned, knobs, asked)
    if no_schedules:
        knobs = [knob for knob in knobs if knob.in_list != SCHEDULES]
    if not parts.whole or not parts.other:
        raise TunePlanError(
            f"{settings.trace[0]}: all of its requests are one conversation, so there is nothing to"
            " judge on"
        )
    if parts.too_short and not settings.anyway:
        raise TunePlanError(f"{parts.too_short}; --anyway searches it all the same")
    return TunePlan(
        goal=goal,
        parts=parts,
        document=document,
        space=Space(document, settings.policy, knobs, _lists(settings, planned, parts)),
        sim=sim,
        planned=planned,
        unplayed=planned.trace.unplayed.lines.total(),
        no_schedules=no_schedules,
        noted=noted(planned.trace.paths, requests),
    )


def _no_schedules(
    settings: TuneSettings, planned: SimPlan, knobs: Sequence[Knob], asked: Sequence[Knob]
) -> str:
    """Why schedules are not searched, although nobody left them out. Raises TunePlanError if they
    were asked for by name."""
    if all(knob.in_list != SCHEDULES for knob in knobs):
        return ""
    is_asked = bool(settings.only) or any(knob.in_list == SCHEDULES for knob in asked)
    why = why_none(
        planned.extent.last_s,
        has_hours=planned.extent.began_s is not None,
        has_own=bool(planned.pool.spec.scaling.schedules),
        is_asked=is_asked,
    )
    if why and is_asked:
        raise TunePlanError(f"schedules cannot be searched: {why}")
    return why


def _lists(settings: TuneSettings, planned: SimPlan, parts: Parts) -> list[ListField]:
    """Those of the rates, and of schedules where the trace says the hours."""
    lists: list[ListField] = [*RATES]
    if (began_s := planned.extent.began_s) is not None:
        load = DayLoad.of(parts.whole, began_s, ZoneInfo(settings.time_zone))
        lists.append(Schedules(load, settings.time_zone))
    return lists


def _check_has_times(settings: TuneSettings) -> None:
    """Raises TraceError, TunePlanError."""
    trace = open_trace([Path(name) for name in settings.trace])
    if trace.format.reader().rows is None:
        raise TunePlanError(
            f"{settings.trace[0]}: has agents' sessions, which have no times of their own: pando"
            " tune plays traces of requests with times"
        )


def _sim_settings(settings: TuneSettings) -> SimSettings:
    """The settings with which `pando sim` would play this trace."""
    same = {name: getattr(settings, name) for name in ReplaySettings.model_fields}
    return SimSettings.model_construct(
        **same,
        policy=(settings.policy,),
        scaling=(OPERATOR,),
        slow_ttft_seconds=settings.ttft_p99,
        slow_gap_seconds=settings.gap_p99,
        csv=False,
    )
