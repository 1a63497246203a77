"""Rules over several fields: what the API server computes by CEL is what the operator computes."""

import copy
from typing import Any

import cel
import pytest

from pando_operator.resource.parse import InvalidPool, parse
from pando_operator.resource.rules import RULES, Rule
from pando_operator.resource.spec import WorkerPoolSpec
from tests.operator.resource.defaulting import defaulted

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


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("spec.scaling.maxReplicas must be at least", scaling(minReplicas=5)),
    ("spec.scaling.shadowPolicies[].maxReplicas must be at least", shadow(minReplicas=9)),
    ("spec.scaling.maxReplicas is required", {"scaling": {}}),
    ("spec.scaling.maxReplicas is required", {"scaling": {"mode": "Recommend"}}),
    (
        "spec.scaling.shadowPolicies[].maxReplicas is required",
        scaling(shadowPolicies=[{"name": "calm"}]),
    ),
    ("spec.scaling.idleSeconds is required", scaling(minReplicas=0)),
    (
        "spec.scaling.idleSeconds is required",
        scaling(schedules=[{**MORNINGS, "minReplicas": 0}]),
    ),
    ("spec.scaling.shadowPolicies[].idleSeconds is required", shadow(minReplicas=0)),
    ("spec.scaling.idleSeconds has no effect", scaling(idleSeconds=60)),
    ("spec.scaling.shadowPolicies[].idleSeconds has no effect", shadow(idleSeconds=60)),
    ("spec.scaling.budget.replicaHours must be enough", scaling(budget={"replicaHours": 23})),
    (
        "spec.scaling.shadowPolicies[].budget.replicaHours must be enough",
        shadow(budget={"replicaHours": 1, "periodHours": 2}),
    ),
    (
        "spec.scaling.schedules[] needs minReplicas or maxReplicas",
        scaling(schedules=[{"cron": "0 8 * * *", "durationSeconds": 60}]),
    ),
    (
        "spec.scaling.shadowPolicies[].schedules[] needs minReplicas or maxReplicas",
        shadow(schedules=[{"cron": "0 8 * * *", "durationSeconds": 60}]),
    ),
    (
        "spec.scaling.schedules[].maxReplicas must be at least its minReplicas",
        scaling(schedules=[MORNINGS, {**MORNINGS, "maxReplicas": 1}]),
    ),
    (
        "spec.scaling.shadowPolicies[].schedules[].maxReplicas must be at least",
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
    (
        "spec.scaling.schedules[].cron must be",
        scaling(schedules=[{**MORNINGS, "cron": "61 * * * *"}]),
    ),
    (
        "spec.scaling.schedules[].timeZone must be",
        scaling(schedules=[{**MORNINGS, "timeZone": "Europe/Nowhere"}]),
    ),
    (
        "spec.scaling.shadowPolicies[].schedules[].cron must be",
        shadow(schedules=[{**MORNINGS, "cron": "a b c d e"}]),
    ),
    (
        "spec.scaling.shadowPolicies[].schedules[].timeZone must be",
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


def pool(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "llama"}, "spec": {**copy.deepcopy(GOOD), **spec}}


def messages(spec: dict[str, Any]) -> set[str]:
    try:
        parse(pool(spec))
    except InvalidPool as error:
        return {str(problem) for problem in error.problems}
    return set()


@pytest.mark.parametrize(("message", "spec"), BROKEN)
def test_a_broken_rule_names_its_field(message: str, spec: dict[str, Any]) -> None:
    assert any(found.startswith(message) for found in messages(spec)), messages(spec)


@pytest.mark.parametrize("spec", FINE)
def test_what_keeps_the_rules_is_taken(spec: dict[str, Any]) -> None:
    assert messages(spec) == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.message)
def test_each_rule_is_broken_by_one_of_these_examples(rule: Rule) -> None:
    assert any(rule.message in messages(spec) for _, spec in BROKEN)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.cel], ids=lambda r: r.message)
def test_the_api_servers_expression_agrees_with_the_operators(rule: Rule) -> None:
    assert rule.cel
    for spec in [*(spec for _, spec in BROKEN), *FINE]:
        whole = pool(spec)["spec"]
        holds = rule.holds(WorkerPoolSpec.model_validate(whole))
        assert cel.evaluate(rule.cel, {"self": defaulted(whole)}) == holds, spec
