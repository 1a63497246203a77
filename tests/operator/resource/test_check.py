"""The exact messages of the structural check."""

from typing import Any

import pytest

from pando_operator.resource.parse import InvalidPool, parse

LIMITS = "spec.template.resources.limits"


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ({}, ["spec.model is required"]),
        ({"model": None}, ["spec.model must be a string, not null"]),
        ({"model": ""}, ["spec.model must not be empty"]),
        (
            {"scaling": {"maxReplicas": "3", "minReplicas": True, "mode": 1}},
            [
                "spec.scaling.maxReplicas must be an integer, not a string",
                "spec.scaling.minReplicas must be an integer, not true or false",
                "spec.scaling.mode must be a string, not an integer",
            ],
        ),
        (
            {"scaling": {"mode": "auto", "maxReplica": 3}},
            [
                "spec.scaling.mode must be one of Auto, Manual, Recommend, not 'auto';"
                " did you mean Auto?",
                "spec.scaling.maxReplica does not exist; did you mean maxReplicas?",
            ],
        ),
        (
            {"scaling": {"target": {"pressure": 0}, "tolerance": 1, "maxReplicas": 1001}},
            [
                "spec.scaling.target.pressure must be above 0, not 0",
                "spec.scaling.tolerance must be below 1, not 1",
                "spec.scaling.maxReplicas must be at most 1000, not 1001",
            ],
        ),
        (
            {"scaling": {"behavior": {"scaleUp": {"policies": []}}}},
            ["spec.scaling.behavior.scaleUp.policies needs at least 1 entries"],
        ),
        (
            {"template": {"resources": {"limits": {"cpu": "much", "nvidia.com/gpu": []}}}},
            [
                f"{LIMITS}.cpu must be a quantity such as 4, 500m or 8Gi, not 'much'",
                f"{LIMITS}['nvidia.com/gpu'] must be a number or a string, not a list",
            ],
        ),
        (
            {"template": {"labels": {f"k{number}": "" for number in range(65)}}},
            ["spec.template.labels has 65 entries, must have at most 64"],
        ),
        (
            {"template": {"env": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}},
            ["spec.template.env[2].name is 'A' a second time"],
        ),
        (
            {"template": {"env": [{"name": "A", "value": 5}]}, "model": "m" * 4097},
            [
                "spec.template.env[0].value must be a string, not an integer",
                "spec.model has 4097 characters, must have at most 4096",
            ],
        ),
        ([], ["spec must be an object, not a list"]),
    ],
)
def test_each_problem_has_its_fields_path_and_says_what_is_right(
    spec: Any, problems: list[str]
) -> None:
    if isinstance(spec, dict) and spec:
        spec = {"model": "m", **spec}
    with pytest.raises(InvalidPool) as refused:
        parse({"metadata": {"name": "llama"}, "spec": spec})
    assert sorted(map(str, refused.value.problems)) == sorted(problems)


def test_no_message_repeats_the_value_of_a_variable() -> None:
    env = [{"name": "TOKEN", "value": {"of": "s3cret"}}, {"name": "OTHER", "valu": "s3cret"}]
    with pytest.raises(InvalidPool) as refused:
        parse({"metadata": {"name": "llama"}, "spec": {"model": "m", "template": {"env": env}}})
    assert len(refused.value.problems) == 2
    assert "s3cret" not in str(refused.value)
