"""Values: strict lint, and a schema that refuses unknown values."""

import json
import re
from typing import Any

import helm_python
import pytest
from helm_python import HelmValuesError, lint

from pando_fleet.distribution import version
from pando_operator.settings import OperatorSettings
from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings
from tests.helm.chart import (
    CHART,
    CURRENT,
    OLDEST,
    VALUES_FILES,
    render,
    render_files,
    values_of,
)
from tests.helm.kubernetes_schemas import errors
from tools.generate.values import OPERATOR_FIXED, ROUTER_FIXED, SCHEMA, reader

INFORMATION = 1


@pytest.mark.parametrize(
    ("values", "kube"), [("everything-values.yaml", OLDEST)] + [(v, CURRENT) for v in VALUES_FILES]
)
def test_strict_lint_finds_nothing(values: str, kube: str) -> None:
    report = lint(CHART, dict(values_of(values)), strict=True, kube_version=kube)
    assert not report["errors"]
    assert not [one for one in report["messages"] if one["severity"] > INFORMATION]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("redis", None),
        ("global.image", None),
        ("router.service.port", None),
        ("router.pdb.maxUnavailable", None),
        ("operator.watchAllNamespaces", None),
        ("networkPolicy.httpsPorts", None),
        ("pools.7b.model", "m"),
        ("routers.replicas", 2),
        ("router.replica", 2),
        ("router.replicas", "two"),
        ("router.settings.max_try", 2),
        ("router.settings.redis", "redis://elsewhere"),
        ("router.settings.leave_seconds", -1),
        ("router.resources.request.cpu", "1"),
        ("router.service.type", "Loadbalancer"),
        ("router.ingress.hosts", [{"host": "a"}]),
        ("operator.settings.periods", 2),
        ("operator.settings.namespaces", ["a"]),
        ("pools.a.modell", "m"),
        ("pools.default.engine.pageSizes", 16),
        ("pools.default.scaling.minReplica", 1),
        ("pools.default.template.image", 5),
        ("pools.Not_A_Name.model", "m"),
        ("redis.enabled", True),
        ("redis.external.url", "redis://:secret@elsewhere"),
        ("redis.maxmemory", "much"),
        ("global.image.pullPolicy", "Sometimes"),
        ("global.image.registri", "r"),
        ("monitoring.podMonitors.enabled", True),
        ("networkPolicy.httpsPorts", [443, 0]),
        ("auth.keys", ["secret"]),
        ("extraObject", []),
    ],
)
def test_a_value_that_does_not_exist_is_refused_by_name(path: str, value: Any) -> None:
    names = path.split(".")
    values: Any = value
    for name in reversed(names):
        values = {name: values}
    with pytest.raises(HelmValuesError) as refused:
        render_files(values)
    assert any(name in str(refused.value) for name in names[-2:])


def test_a_value_whose_default_is_empty_may_be_null() -> None:
    values: dict[str, Any] = {}
    for row in reader().rows:
        if row.default in (None, "", [], {}) or isinstance(row.default, dict):
            section = values
            for name in row.path[:-1]:
                section = section.setdefault(name, {})
            section[row.path[-1]] = None
    assert values["pools"] is None and values["router"]["settings"] is None
    assert not [error for m in render(values) for error in errors(m, CURRENT)]
    assert "There is no pool yet" in render_files(values)["pando/templates/NOTES.txt"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"networkPolicy": {"enabled": True}, "monitoring": {"podMonitor": {"enabled": True}}},
            "networkPolicy.scrapers is empty",
        ),
        (
            {
                "networkPolicy": {"enabled": True, "clients": [{"podSelector": {}}]},
                "monitoring": {"serviceMonitor": {"enabled": True}},
            },
            "networkPolicy.scrapers is empty",
        ),
        (
            {"networkPolicy": {"enabled": True}, "redis": {"external": {"existingSecret": "a"}}},
            "networkPolicy.extraEgress is empty",
        ),
        (
            {
                "router": {"settings": {"metrics_need_key": True}},
                "monitoring": {"serviceMonitor": {"enabled": True}},
            },
            "metrics_need_key",
        ),
        ({"fullnameOverride": "7b"}, "set fullnameOverride"),
    ],
)
def test_values_that_would_work_against_each_other_are_refused(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(helm_python.HelmError, match=message):
        render_files(values)


def test_a_chart_that_this_one_is_a_part_of_may_have_globals_of_its_own() -> None:
    render_files({"global": {"storageClass": "fast"}})


def test_two_sources_of_api_keys_are_refused() -> None:
    with pytest.raises(helm_python.HelmError, match="exclude each other"):
        render_files({"auth": {"existingSecret": "a", "tenants": {"b": {"keys": []}}}})


def test_a_pool_cannot_have_the_name_of_a_component() -> None:
    with pytest.raises(helm_python.HelmError, match="chart's own Deployment has this name"):
        render_files({"pools": {"pando-router": {"model": "m"}}})


def test_notes_show_a_request_that_names_a_model_and_a_key_where_one_is_asked_for() -> None:
    notes = render_files(values_of("api-keys-values.yaml"))["pando/templates/NOTES.txt"]
    assert "kubectl -n llm wait workerpool/default --for=condition=Ready" in notes
    assert '"model": "smollm2"' in notes and "authorization: Bearer $API_KEY" in notes
    bare = render_files(values_of("bare-values.yaml"))["pando/templates/NOTES.txt"]
    assert "There is no pool yet" in bare and "workerpool/" not in bare


def test_every_value_is_used_by_a_template() -> None:
    templates = "\n".join(
        file.read_text(encoding="utf-8")
        for file in (CHART / "templates").rglob("*")
        if file.suffix in {".yaml", ".tpl", ".txt"}
    )
    unused = [
        ".".join(value.path)
        for value in reader().rows
        if not re.search(rf"\.{value.path[-1]}\b", templates)
    ]
    assert not unused


def test_the_charts_own_settings_are_settings() -> None:
    assert set(ROUTER_FIXED) <= set(RouterSettings.model_fields)
    assert set(OPERATOR_FIXED) <= set(OperatorSettings.model_fields)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))["definitions"]
    router = set(schema["RouterSettings"]["properties"])
    assert router == set(RouterSettings.model_fields) - set(ROUTER_FIXED)


def test_settings_that_need_a_restart_are_those_of_the_router() -> None:
    text = (CHART / "templates/router/_settings.tpl").read_text(encoding="utf-8")
    (line,) = re.findall(r"\$fixed := list (.*) -}}", text)
    assert set(re.findall(r'"(\w+)"', line)) == needing_restart(RouterSettings)


def test_the_apps_version_is_the_projects() -> None:
    with helm_python.Chart.load(CHART) as chart:
        assert chart.metadata["appVersion"] == version()
