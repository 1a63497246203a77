"""Rules over several fields: the API server's CEL and the operator give the same result."""

import copy
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_operator.resource.parse import InvalidPool, parse
from tests.examples import examples
from tests.operator.resource.server_model import refusals, rules

GOOD: dict[str, Any] = {
    "model": "org/model",
    "scaling": {"minReplicas": 1, "maxReplicas": 4},
}

GPUS = {"template": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}
MORNINGS = {"cron": "0 8 * * MON-FRI", "durationSeconds": 3600, "minReplicas": 2}


def scaling(**fields: Any) -> dict[str, Any]:
    return {"scaling": {"minReplicas": 1, "maxReplicas": 4, **fields}}


def shadow(**fields: Any) -> dict[str, Any]:
    return scaling(shadowPolicies=[{"name": "calm", "maxReplicas": 3, **fields}])


def adapters(slots: int | None, names: str, pinned: str = "", **fields: Any) -> dict[str, Any]:
    """A pool with adapters whose names are single letters."""
    there = [{"name": name, "source": "x", "pin": name in pinned} for name in names]
    return {"engine": {} if slots is None else {"maxLoras": slots}, "adapters": there, **fields}


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("spec.scaling.maxReplicas must be at least", scaling(minReplicas=5)),
    ("spec.scaling.shadowPolicies[0].maxReplicas must be at least", shadow(minReplicas=9)),
    ("spec.scaling.maxReplicas is required", {"scaling": {}}),
    ("spec.scaling.maxReplicas is required", {"scaling": {"mode": "Recommend"}}),
    (
        "spec.scaling.shadowPolicies[0].maxReplicas is required",
        scaling(shadowPolicies=[{"name": "calm"}]),
    ),
    ("spec.scaling.idleSeconds is required", scaling(minReplicas=0)),
    (
        "spec.scaling.idleSeconds is required",
        scaling(schedules=[{**MORNINGS, "minReplicas": 0}]),
    ),
    ("spec.scaling.shadowPolicies[0].idleSeconds is required", shadow(minReplicas=0)),
    (
        "spec.scaling.shadowPolicies[0].schedules[].minReplicas must be at most",
        shadow(schedules=[{**MORNINGS, "minReplicas": 4}]),
    ),
    ("spec.scaling.idleSeconds has no effect", scaling(idleSeconds=60)),
    ("spec.scaling.shadowPolicies[0].idleSeconds has no effect", shadow(idleSeconds=60)),
    (
        "spec.scaling.schedules[].minReplicas must be at most scaling.maxReplicas",
        scaling(schedules=[MORNINGS, {**MORNINGS, "minReplicas": 8}]),
    ),
    ("spec.scaling.budget.replicaHours must pay for", scaling(budget={"replicaHours": 23})),
    (
        "spec.scaling.shadowPolicies[0].budget.replicaHours must pay for",
        shadow(budget={"replicaHours": 1, "periodHours": 2}),
    ),
    (
        "spec.scaling.schedules[0] needs minReplicas or maxReplicas",
        scaling(schedules=[{"cron": "0 8 * * *", "durationSeconds": 60}]),
    ),
    (
        "spec.scaling.shadowPolicies[0].schedules[0] needs minReplicas or maxReplicas",
        shadow(schedules=[{"cron": "0 8 * * *", "durationSeconds": 60}]),
    ),
    (
        "spec.scaling.schedules[1].maxReplicas must be at least its minReplicas",
        scaling(schedules=[MORNINGS, {**MORNINGS, "maxReplicas": 1}]),
    ),
    (
        "spec.scaling.shadowPolicies[0].schedules[0].maxReplicas must be at least",
        shadow(schedules=[{**MORNINGS, "maxReplicas": 1}]),
    ),
    ("spec.tensorParallelSize must be the number of GPUs", GPUS),
    (
        "spec.tensorParallelSize must be the number of GPUs",
        {"template": {"resources": {"limits": {"nvidia.com/gpu": "2"}}}},
    ),
    ("spec.engine.device must be cuda", GPUS),
    ("spec.engine.attentionBackend must not be", {"engine": {"attentionBackend": "flashinfer"}}),
    (
        "spec.engine.chunkedPrefillSize must be at least",
        {"engine": {"chunkedPrefillSize": 8, "pageSize": 16}},
    ),
    ("spec.engine.chunkedPrefillSize must be at least", {"engine": {"chunkedPrefillSize": 8}}),
    (
        "spec.engine.hostMemoryGib keeps cached prefixes",
        {"engine": {"hostMemoryGib": 2, "radixCache": False}},
    ),
    (
        "spec.template.terminationGracePeriodSeconds must be at least 15",
        {"template": {"terminationGracePeriodSeconds": 314}},
    ),
    (
        "spec.template.env[].name must not begin with PANDO_WORKER_",
        {"template": {"env": [{"name": "PANDO_WORKER_POOL", "value": "x"}]}},
    ),
    (
        "spec.template.labels must have no key",
        {"template": {"labels": {"app.kubernetes.io/name": "x"}}},
    ),
    (
        "spec.template.volumes[].name must not begin with pando-",
        {"template": {"volumes": [{"name": "pando-tmp", "emptyDir": {}}]}},
    ),
    (
        "spec.template.volumeMounts[].name must be the name",
        {"template": {"volumeMounts": [{"name": "models", "mountPath": "/models"}]}},
    ),
    ("spec.engine.maxBodiesBytes must be at least", {"engine": {"maxBodiesBytes": 143}}),
    ("spec.engine.maxBodiesBytes must be at least", {"engine": {"maxBodyBytes": 2_000_000_000}}),
    ("spec.engine.loraRanks must be at least", {"engine": {"loraRanks": 63}}),
    (
        "spec.engine.loraRanks must be at least",
        {"engine": {"loraRanks": 16, "maxLoraRank": 32}},
    ),
    ("spec.engine.maxLoras must be at least 1", adapters(slots=None, names="a")),
    ("spec.engine.maxLoras must be at least 1", adapters(slots=0, names="a")),
    ("spec.adapters[].pin must be true for fewer", adapters(slots=2, names="abc", pinned="ab")),
    ("spec.adapters[].pin must be true for fewer", adapters(slots=1, names="a", pinned="a")),
    (
        "spec.adapters[].name must not be the model's",
        adapters(slots=1, names="a", servedModelName="a"),
    ),
    ("spec.adapters[].name must not be the model's", adapters(slots=1, names="a", model="a")),
    ("spec.adapters[].name must not be the model's", adapters(slots=1, names="a", model="org/a")),
    ("spec.adapters[].name must not be the model's", adapters(slots=1, names="a", model="/m/a/")),
    (
        "spec.adapters[0].preload must not be false",
        {
            "engine": {"maxLoras": 2},
            "adapters": [{"name": "a", "source": "x", "pin": True, "preload": False}],
        },
    ),
    (
        "spec.scaling.schedules[0].cron must be",
        scaling(schedules=[{**MORNINGS, "cron": "61 * * * *"}]),
    ),
    (
        "spec.scaling.schedules[0].timeZone must be",
        scaling(schedules=[{**MORNINGS, "timeZone": "Europe/Nowhere"}]),
    ),
    (
        "spec.scaling.shadowPolicies[0].schedules[0].cron must be",
        shadow(schedules=[{**MORNINGS, "cron": "a b c d e"}]),
    ),
    (
        "spec.scaling.shadowPolicies[0].schedules[0].timeZone must be",
        shadow(schedules=[{**MORNINGS, "timeZone": "/etc/passwd"}]),
    ),
]

FINE: list[dict[str, Any]] = [
    {},
    {"scaling": {"mode": "Manual"}},
    scaling(minReplicas=0, idleSeconds=600),
    scaling(idleSeconds=60, schedules=[{**MORNINGS, "minReplicas": 0}]),
    scaling(schedules=[MORNINGS, {**MORNINGS, "timeZone": "Europe/Berlin", "maxReplicas": 2}]),
    scaling(budget={"replicaHours": 24}, panic={}),
    shadow(minReplicas=0, idleSeconds=5),
    {**GPUS, "tensorParallelSize": 2, "engine": {"device": "cuda"}},
    {"engine": {"device": "cuda", "attentionBackend": "flashinfer", "hostMemoryGib": 1.5}},
    {"engine": {"maxLoras": 0}, "adapters": []},
    {"engine": {"loraRanks": 64}},
    {"engine": {"loraRanks": 8, "maxLoraRank": 8}},
    adapters(slots=3, names="ab", pinned="ab"),
    adapters(slots=2, names="abc", pinned="a"),
    adapters(slots=1, names="a", model="org/a", servedModelName="b"),
    {
        "model": "my/org/a",
        "engine": {"maxLoras": 1},
        "adapters": [{"name": "org/a", "source": "x"}, {"name": "my/org/a", "source": "x"}],
    },
    {"engine": {"chunkedPrefillSize": 16, "hostMemoryGib": 0, "radixCache": False}},
    {
        "template": {
            "terminationGracePeriodSeconds": 315,
            "env": [{"name": "HF_TOKEN", "value": "x"}],
            "labels": {"team": "a"},
            "volumes": [{"name": "models", "emptyDir": {}}],
            "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        }
    },
]


_POLICY: dict[str, st.SearchStrategy[Any]] = {
    "minReplicas": st.integers(0, 3),
    "maxReplicas": st.integers(1, 3),
    "idleSeconds": st.just(60),
    "budget": st.fixed_dictionaries(
        {"replicaHours": st.sampled_from((1, 24, 47.5, 48))},
        optional={"periodHours": st.sampled_from((1, 23.75))},
    ),
    "schedules": st.lists(
        st.fixed_dictionaries(
            {"cron": st.just("0 8 * * *"), "durationSeconds": st.just(60)},
            optional={"minReplicas": st.integers(0, 2), "maxReplicas": st.integers(1, 2)},
        ),
        max_size=2,
    ),
}
_SHADOWS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional=_POLICY),
    max_size=2,
    unique_by=lambda shadow: str(shadow["name"]),
)
_NAMED = st.sampled_from(("pando-a", "a", "b"))


def _named(names: st.SearchStrategy[str], **more: Any) -> st.SearchStrategy[list[dict[str, Any]]]:
    """At most one, so that a list's keys differ."""
    return st.lists(st.fixed_dictionaries({"name": names} | more), max_size=1)


_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "tensorParallelSize": st.integers(1, 2),
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "device": st.sampled_from(("cpu", "cuda")),
                "attentionBackend": st.sampled_from(("auto", "flashinfer")),
                "chunkedPrefillSize": st.sampled_from((8, 16, 32)),
                "pageSize": st.sampled_from((8, 16, 32)),
                "hostMemoryGib": st.sampled_from((0, 0.0, 1, 1.5)),
                "radixCache": st.booleans(),
                "maxLoras": st.integers(0, 2),
                "loraRanks": st.sampled_from((8, 64)),
                "maxLoraRank": st.sampled_from((8, 16, 64)),
                "maxBodyBytes": st.sampled_from((1, 2**30, 2**31)),
                "maxBodiesBytes": st.sampled_from((1, 2**26, 2**30, 2**31)),
            },
        ),
        "servedModelName": st.sampled_from("ab"),
        "adapters": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(("a", "b", "model", "org/model")), "source": st.just("x")},
                optional={"pin": st.booleans(), "preload": st.booleans()},
            ),
            max_size=3,
            unique_by=lambda adapter: str(adapter["name"]),
        ),
        "template": st.fixed_dictionaries(
            {},
            optional={
                "terminationGracePeriodSeconds": st.sampled_from((24, 25, 314, 315)),
                "env": _named(st.sampled_from(("PANDO_WORKER_X", "PANDO_X"))),
                "labels": st.dictionaries(
                    st.sampled_from(("pando.dev/x", "app.kubernetes.io/name", "x")), st.just("x")
                ),
                "volumes": _named(_NAMED),
                "volumeMounts": _named(_NAMED, mountPath=st.just("/a")),
                "resources": st.fixed_dictionaries(
                    {},
                    optional={
                        "limits": st.dictionaries(
                            st.sampled_from(("nvidia.com/gpu", "cpu")),
                            st.sampled_from((1, 2, "1", "2")),
                        )
                    },
                ),
            },
        ),
        "scaling": st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from(("Auto", "Manual", "Recommend")),
                "drain": st.just({"timeoutSeconds": 10}),
                "shadowPolicies": _SHADOWS,
                **_POLICY,
            },
        ),
    },
)


def pool(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "llama"}, "spec": {**copy.deepcopy(GOOD), **spec}}


def messages(spec: dict[str, Any]) -> set[str]:
    try:
        parse(pool(spec))
    except InvalidPool as error:
        return {str(problem) for problem in error.problems}
    return set()


def _words(messages: Iterable[str]) -> set[str]:
    """The words without paths: the operator puts the field before the message, the server after."""
    return {message.replace(".", " ") for message in messages}


@pytest.mark.parametrize(("message", "spec"), BROKEN)
def test_a_broken_rule_names_its_field(message: str, spec: dict[str, Any]) -> None:
    assert any(found.startswith(message) for found in messages(spec)), messages(spec)


@pytest.mark.parametrize("spec", FINE)
def test_what_keeps_the_rules_is_taken(spec: dict[str, Any]) -> None:
    assert messages(spec) == set()


@pytest.mark.parametrize("rule", list(rules()))
def test_the_api_server_refuses_one_of_these_examples_by_each_rule(rule: str) -> None:
    broken = {one for _, spec in BROKEN for one in refusals(pool(spec)["spec"])}
    assert rule in {re.sub(r"\[\d+\]", "[]", one) for one in broken}


@given(_SPECS)
@settings(max_examples=examples(150))
def test_the_api_server_refuses_by_the_rules_what_the_operator_refuses(
    spec: dict[str, Any],
) -> None:
    assert _words(refusals(pool(spec)["spec"])) == _words(messages(spec))


@pytest.mark.parametrize("spec", FINE)
def test_what_the_operator_takes_the_api_server_takes(spec: dict[str, Any]) -> None:
    assert refusals(pool(spec)["spec"]) == set()
