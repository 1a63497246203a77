"""Candidates are manifests that the operator accepts, and patches lead from today's to them."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_operator.resource.parse import InvalidPool, parse
from pando_sim.tuning.knobs import Knob, KnobError, asked_knob, scaling_knobs
from pando_sim.tuning.lists import ListField
from pando_sim.tuning.rates import RATES
from pando_sim.tuning.schedules import (
    BUSY,
    EARLY,
    REPLICAS,
    DayLoad,
    Schedules,
    schedule_knobs,
)
from pando_sim.tuning.space import Document, Space, Values, chosen_knobs
from tests.examples import examples
from tests.sim.tuning.manifests import GOAL, document, space

RATE_KNOBS = [knob for one in RATES for knob in one.knobs(6)]
KNOBS = (*scaling_knobs(GOAL, 6), *schedule_knobs(1, 6, 60.0), *RATE_KNOBS)
SHARES = (0.1,) * 36 + (1.0,) * 8 + (0.4,) * 40 + (0.1,) * 12
LISTS: tuple[ListField, ...] = (*RATES, Schedules(DayLoad(SHARES), "UTC"))
PODS, PERCENT, PERIOD = (
    f"scaling.behavior.scaleDown.policies.{name}" for name in ("pods", "percent", "periodSeconds")
)


def whole_space(**scaling: Any) -> Space:
    """With everything that can be searched in `spec.scaling`."""
    return Space(document(**scaling), "cache_aware", KNOBS, LISTS)


def merged(target: Document, patch: Document) -> Document:
    """RFC 7386, as the API server merges."""
    result = deepcopy(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name, {}), value)
        else:
            result[name] = value
    return result


@st.composite
def any_values(draw: st.DrawFn) -> Values:
    values: Values = {}
    for knob in KNOBS:
        number = st.floats(knob.low, knob.high).map(knob.rounded)
        values[knob.path] = draw(st.none() | number if knob.may_be_off else number)
    return values


MANIFESTS: list[dict[str, Any]] = [
    {},
    {"panic": {"windowSeconds": 10, "threshold": 3}, "target": {"pressure": 0.5}},
    {"budget": {"replicaHours": 48}, "behavior": {"scaleDown": {"selectPolicy": "Min"}}},
    {"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}}},
]


@pytest.mark.parametrize("scaling", MANIFESTS)
def test_the_patch_of_a_candidate_makes_its_manifest_of_todays(scaling: dict[str, Any]) -> None:
    @given(any_values())
    @settings(max_examples=examples(60), deadline=None)
    def holds(values: Values) -> None:
        here = whole_space(**scaling)
        try:
            candidate = here.candidate(values)
        except InvalidPool:
            assert "budget" in scaling, "only a budget can be too small for minReplicas"
            return
        patched = merged(document(**scaling), here.patch(candidate.values))
        assert parse(patched).spec == candidate.pool.spec

    holds()


def test_todays_values_change_nothing() -> None:
    for scaling in MANIFESTS:
        here = whole_space(**scaling)
        candidate = here.candidate(here.today)
        assert candidate.document == document(**scaling)
        assert here.patch(here.today) == {}
        assert here.changed(here.today) == {}


def test_the_defaults_are_those_of_a_manifest_without_the_fields() -> None:
    here = whole_space(**MANIFESTS[1])
    assert here.defaults == whole_space().today
    assert here.candidate(here.defaults).pool.spec == parse(document()).spec


def test_the_window_of_panic_is_nothing_without_panic() -> None:
    here = space()
    values = here.today | {"scaling.panic.windowSeconds": 12.0}
    assert here.candidate(values).document == document()
    values |= {"scaling.panic.threshold": 2.0}
    made = here.candidate(values)
    assert made.document["spec"]["scaling"]["panic"] == {"threshold": 2.0, "windowSeconds": 12}
    assert json.dumps(here.patch(made.values)).count("12") == 1


def test_rates_are_policies_of_a_direction() -> None:
    here = whole_space()
    values = here.candidate(here.today | {PODS: 2.0, PERCENT: 50.0, PERIOD: 90.0}).values
    policies = [
        {"type": "Pods", "value": 2, "periodSeconds": 90},
        {"type": "Percent", "value": 50, "periodSeconds": 90},
    ]
    assert here.patch(values) == {
        "spec": {"scaling": {"behavior": {"scaleDown": {"policies": policies}}}}
    }
    rules = here.candidate(values).pool.spec.scaling.behavior
    assert [(one.type, one.value) for one in rules.scale_down.policies] == [
        ("Pods", 2),
        ("Percent", 50),
    ]
    assert rules.scale_up == parse(document()).spec.scaling.behavior.scale_up


def test_the_period_of_rates_is_nothing_without_them() -> None:
    here = whole_space()
    assert here.candidate(here.today | {PERIOD: 300.0}).document == document()
    one = here.candidate(here.today | {PERCENT: 50.0, PERIOD: 300.0})
    assert one.values[PERIOD] == 300.0


def test_rates_are_searched_only_if_asked() -> None:
    def paths(search: str = "", *only: str) -> set[str]:
        asked = [asked_knob(search, KNOBS)] if search else []
        return {knob.path for knob in chosen_knobs(KNOBS, asked, only, document())}

    usual = paths()
    assert not usual & {knob.path for knob in RATE_KNOBS}
    assert REPLICAS in usual
    assert paths("behavior.scaleDown.policies.pods=1..2") - usual == {PODS, PERIOD}
    assert paths("behavior.scaleDown.policies.periodSeconds=15..60") - usual == {
        PODS,
        PERCENT,
        PERIOD,
    }
    assert paths("", "behavior.scaleDown.policies") == {PODS, PERCENT, PERIOD}
    assert paths("", "behavior.scaleDown.policies.pods") == {PODS}
    assert paths("", "schedules") == {REPLICAS, BUSY, EARLY}
    assert paths("", "schedules.busyShare") == {REPLICAS, BUSY}


def test_a_range_that_was_asked_for_has_the_value_of_a_list_before_it_is_searched() -> None:
    knob = asked_knob("schedules.busyShare=0.8..0.9", KNOBS)
    assert (knob.low, knob.high, knob.default) == (0.8, 0.9, 0.8)


def test_what_today_has_is_in_the_range() -> None:
    here = space(target={"pressure": 1.0}, windowSeconds=600)
    by_path = {knob.path: knob for knob in here.knobs}
    assert by_path["scaling.target.pressure"].high == 1.0
    assert by_path["scaling.windowSeconds"].high == 600


def test_memory_is_searched_where_a_range_is_given() -> None:
    knob = asked_knob("engine.maxTotalTokens=50000..120000", KNOBS)
    here = Space(document(), "cache_aware", [knob])
    made = here.candidate({knob.path: knob.rounded(87_654.0)})
    assert made.document["spec"]["engine"] == {"maxTotalTokens": 88_000}
    assert here.patch(made.values) == {"spec": {"engine": {"maxTotalTokens": 88_000}}}


def test_a_policy_is_no_field_of_the_manifest() -> None:
    knob = asked_knob("policy=cache_aware+least_loaded", KNOBS)
    here = Space(document(), "cache_aware", [knob])
    made = here.candidate({"policy": "least_loaded"})
    assert made.policy == "least_loaded"
    assert made.document == document()
    assert here.patch(made.values) == {}
    assert here.changed(made.values) == {"policy": ("cache_aware", "least_loaded")}


def test_only_some_fields_are_searched() -> None:
    def paths(*only: str, **scaling: Any) -> list[str]:
        return [knob.path for knob in chosen_knobs(KNOBS, [], only, document(**scaling))]

    assert paths() == [knob.path for knob in KNOBS if not knob.only_if_asked]
    assert paths("target.pressure") == ["scaling.target.pressure"]
    assert paths("panic.windowSeconds") == [
        "scaling.panic.threshold",
        "scaling.panic.windowSeconds",
    ]
    assert paths("named", windowSeconds=20) == ["scaling.minReplicas", "scaling.windowSeconds"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("windowSeconds", "must be FIELD=LOW..HIGH"),
        ("windowSeconds=9..3", "LOW below HIGH"),
        ("windowSeconds=few..many", "LOW below HIGH"),
        ("windowSecond=3..9", "there is no field windowSecond; there are target.pressure, "),
        ("policy=cache_aware", "at least two"),
        ("policy=cache_aware+fastest", "no policy 'fastest' of Pando's"),
    ],
)
def test_a_wrong_range_is_one_line(text: str, says: str) -> None:
    with pytest.raises(KnobError) as error:
        asked_knob(text, KNOBS)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_numbers_are_rounded_as_a_person_writes_them() -> None:
    whole = Knob(path="a", words="", is_whole=True)
    assert [whole.rounded(value) for value in (7.4, 87.6, 123.4, 1876.0, 87_654.0)] == [
        7,
        88,
        120,
        1900,
        88_000,
    ]
    assert Knob(path="a", words="").rounded(0.12345) == 0.12
