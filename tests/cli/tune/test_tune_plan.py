"""What is searched, by what the trace and the manifest say."""

from pathlib import Path
from typing import Any

import pytest

from pando.tune.plan import TunePlan, TunePlanError, make_tune_plan
from pando.tune.settings import TuneSettings
from tests.cli.tune.test_tune import COST, mornings, pool, trace

NINE_MIN = 9 * 60


def planned(folder: Path, days: int, manifest: dict[str, Any], **settings: Any) -> TunePlan:
    fields = {"trace": (mornings(folder, days),), "anyway": True, "cost_model": COST, **settings}
    path = pool(folder, **manifest)
    return make_tune_plan(TuneSettings.model_validate({"pool": path, **fields}))


def searched(plan: TunePlan) -> set[str]:
    """Fields of schedules."""
    return {knob.path for knob in plan.space.knobs if knob.in_list == "scaling.schedules"}


def schedules(plan: TunePlan) -> list[dict[str, Any]]:
    """Of a candidate with two replicas in the busy hours, else as it is today."""
    values = plan.space.today | {"scaling.schedules.minReplicas": 2.0}
    found: list[dict[str, Any]] = (
        plan.space.candidate(values).document["spec"]["scaling"].get("schedules", [])
    )
    return found


def test_two_days_show_that_hours_repeat_and_one_does_not(tmp_path: Path) -> None:
    one, two = (planned(tmp_path, days, {}) for days in (1, 2))
    assert not searched(one)
    assert "only two days can show that hours repeat" in one.no_schedules
    assert len(searched(two)) == 3
    assert two.no_schedules == ""
    assert [entry["cron"] for entry in schedules(two)] == ["58 8 * * *"]


def test_one_day_is_enough_for_those_who_ask(tmp_path: Path) -> None:
    for asked in ({"search": ("schedules.minReplicas=2..3",)}, {"only": ("schedules",)}):
        plan = planned(tmp_path, 1, {}, **asked)
        assert len(searched(plan)) == 3
        assert schedules(plan)


def test_cron_lines_are_in_the_time_zone(tmp_path: Path) -> None:
    plan = planned(tmp_path, 2, {}, time_zone="Europe/Berlin")
    assert [(one["cron"], one["timeZone"]) for one in schedules(plan)] == [
        ("58 9 * * *", "Europe/Berlin")
    ]


def test_schedules_of_the_manifest_stay(tmp_path: Path) -> None:
    own = {"schedules": [{"cron": "0 6 * * *", "durationSeconds": 3600, "minReplicas": 2}]}
    plan = planned(tmp_path, 2, own)
    assert not searched(plan)
    assert "schedules of its own" in plan.no_schedules
    candidate = plan.space.candidate(plan.space.defaults)
    assert candidate.document["spec"]["scaling"]["schedules"] == own["schedules"]


def test_schedules_that_cannot_be_searched_are_one_line(tmp_path: Path) -> None:
    without_hours = {"trace": (trace(tmp_path),), "only": ("schedules",)}
    with pytest.raises(TunePlanError, match="schedules cannot be searched: the trace, as it is"):
        planned(tmp_path, 2, {}, **without_hours)
    with pytest.raises(TunePlanError, match="as it is played, does not say at which time"):
        planned(tmp_path, 2, {}, search=("schedules.minReplicas=2..3",), speed=2.0)
    plan = planned(tmp_path, 2, {}, speed=2.0)
    assert "as it is played" in plan.no_schedules


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="must be an IANA time zone"):
        TuneSettings.model_validate({"trace": ("t",), "pool": "p", "time_zone": "Berlin"})


def test_a_run_of_the_part_that_judges_has_its_own_days(tmp_path: Path) -> None:
    """So the clock shows nine when the burst comes."""
    plan = planned(tmp_path, 3, {})
    spec = plan.fleet(plan.space.candidate(plan.space.today))
    for part in (plan.parts.whole, plan.parts.other):
        excerpt = plan.parts.judged if part is plan.parts.other else plan.parts.searched
        clock = excerpt.clock(spec.clock, 1.0)
        minutes = [int(clock.unix_at(one.at_s) % 86_400) // 60 for one in excerpt.requests]
        assert minutes.count(NINE_MIN) + minutes.count(NINE_MIN + 1) > len(part) / 2
