"""Candidates are manifests that the operator accepts, and patches lead from today's to them."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_operator.resource.parse import InvalidPool, parse
from pando_sim.tuning.knobs import Knob, KnobError, asked_knob, scaling_knobs
from pando_sim.tuning.space import Document, Space, Values, chosen_knobs
from tests.examples import examples
from tests.sim.tuning.manifests import GOAL, document, space

KNOBS = scaling_knobs(GOAL, 6)


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
]


@pytest.mark.parametrize("scaling", MANIFESTS)
def test_the_patch_of_a_candidate_makes_its_manifest_of_todays(scaling: dict[str, Any]) -> None:
    @given(any_values())
    @settings(max_examples=examples(60), deadline=None)
    def holds(values: Values) -> None:
        here = space(**scaling)
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
        here = space(**scaling)
        candidate = here.candidate(here.today)
        assert candidate.document == document(**scaling)
        assert here.patch(here.today) == {}
        assert here.changed(here.today) == {}


def test_the_defaults_are_those_of_a_manifest_without_the_fields() -> None:
    here = space(**MANIFESTS[1])
    assert here.defaults == space().today
    assert here.candidate(here.defaults).pool.spec == parse(document()).spec


def test_the_window_of_panic_is_nothing_without_panic() -> None:
    here = space()
    values = here.today | {"scaling.panic.windowSeconds": 12.0}
    assert here.candidate(values).document == document()
    values |= {"scaling.panic.threshold": 2.0}
    made = here.candidate(values)
    assert made.document["spec"]["scaling"]["panic"] == {"threshold": 2.0, "windowSeconds": 12}
    assert json.dumps(here.patch(made.values)).count("12") == 1


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

    assert paths() == [knob.path for knob in KNOBS]
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
