"""The CRD with a real API server."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Invalid
from pando_operator.kube.resources import WORKER_POOLS, Key
from pando_operator.objects.environment import variable
from pando_operator.resource.check import problems
from pando_operator.resource.crd import crd
from pando_operator.resource.parse import InvalidPool, parse, spec_schema
from pando_operator.resource.pool import WorkerPool
from pando_worker.settings import WorkerSettings
from tests.examples import examples
from tests.operator.api_server import ApiServer
from tests.operator.pool_crd import install

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    """A server with the CRD in the form for versions before 1.25, shared by all tests here."""
    install(api_server)
    return api_server


def manifest(namespace: str, name: str = "llama", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": "org/llama", **spec},
    }


async def test_the_server_fills_in_the_defaults_that_the_operator_has(
    server: ApiServer, kube: Kube, namespace: str
) -> None:
    wanted = manifest(namespace, scaling={"maxReplicas": 3, "panic": {}})

    stored = await kube.create(WORKER_POOLS, wanted)

    assert stored["spec"]["scaling"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300
    assert parse(stored).spec == parse(wanted).spec


async def test_the_server_keeps_a_null_that_takes_a_security_setting_away(
    server: ApiServer, kube: Kube, namespace: str
) -> None:
    template = {"podSecurityContext": {"runAsUser": None}}
    made = await kube.create(WORKER_POOLS, manifest(namespace, template=template))
    assert made["spec"]["template"] == template
    assert parse(made).spec.template.pod_security_context == {"runAsUser": None}


async def test_a_pool_without_scaling_follows_kubectl_scale(
    server: ApiServer, kube: Kube, namespace: str
) -> None:
    stored = await kube.create(WORKER_POOLS, manifest(namespace))
    path = WORKER_POOLS.path(namespace, "llama", "scale")
    scale = server.call("GET", path)
    assert scale["spec"]["replicas"] == 1

    scale["spec"]["replicas"] = 4
    server.call("PUT", path, scale)

    pool = parse(await kube.get(WORKER_POOLS, Key(namespace, "llama")))
    assert stored["spec"]["scaling"]["mode"] == "Manual"
    assert pool.spec.replicas == 4


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"scaling": {"maxReplicas": "3"}}, "spec.scaling.maxReplicas"),
        ({"scaling": {"maxReplicas": 3, "mode": "auto"}}, "spec.scaling.mode"),
        (
            {"scaling": {"maxReplicas": 3, "target": {"pressure": 0}}},
            "spec.scaling.target.pressure",
        ),
        ({"engine": {"device": "gpu"}}, "spec.engine.device"),
        ({"engine": {"pageSize": 0}}, "spec.engine.pageSize"),
        ({"template": {"env": [{"value": "x"}]}}, "spec.template.env.name"),
        (
            {"template": {"resources": {"limits": {"cpu": "much"}}}},
            "spec.template.resources.limits",
        ),
        ({"template": {"tolerations": [{"key": 1}]}}, "spec.template.tolerations.key"),
        ({"model": None}, "spec.model"),
    ],
)
async def test_server_and_operator_refuse_the_same_and_name_the_field(
    server: ApiServer, kube: Kube, namespace: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as by_server:
        await kube.create(WORKER_POOLS, manifest(namespace, **spec))
    with pytest.raises(InvalidPool) as by_operator:
        parse(manifest(namespace, **spec))

    assert field in str(by_server.value)
    path = by_operator.value.problems[0].path.replace("[0]", "")
    assert path.startswith(field)


async def test_a_name_that_no_service_can_have_is_refused(
    server: ApiServer, kube: Kube, namespace: str
) -> None:
    for name in ("7b", "llama.7b", "l" * 51):
        with pytest.raises(Invalid, match=r"metadata\.name"):
            await kube.create(WORKER_POOLS, manifest(namespace, name))
        with pytest.raises(InvalidPool, match=r"metadata\.name"):
            parse(manifest(namespace, name))


async def test_what_a_status_holds_is_kept_by_the_server(
    server: ApiServer, kube: Kube, namespace: str
) -> None:
    stored = await kube.create(WORKER_POOLS, manifest(namespace))
    status = {
        "replicas": 2,
        "pressure": 0.42,
        "desired": 3,
        "selector": "a=b",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "AllReady",
            }
        ],
        "decisions": [
            {
                "time": "2026-01-01T00:00:00Z",
                "fromReplicas": 2,
                "toReplicas": 3,
                "reason": "pressure",
                "pressure": 0.9,
            }
        ],
        "history": {"anything": [1, {"deep": True}]},
    }
    path = WORKER_POOLS.path(namespace, "llama", "status")

    kept = server.call("PUT", path, {**stored, "status": status})["status"]

    pool = WorkerPool.model_validate({**stored, "status": kept})
    assert {key: kept[key] for key in status} == status
    assert pool.status.decisions[0].to_replicas == 3
    assert pool.status.conditions[0].reason == "AllReady"


def test_the_table_of_pools_is_readable_at_a_glance(server: ApiServer) -> None:
    columns = crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    glance = [column["name"] for column in columns if column["priority"] == 0]
    assert glance == [
        "Model",
        "Ready",
        "Replicas",
        "Desired",
        "Pressure",
        "Mode",
        "Adapters",
        "Age",
    ]


def test_the_charts_file_is_the_crd_with_rules() -> None:
    file = ROOT / "helm/pando/files/workerpool-crd.yaml"
    assert yaml.safe_load(file.read_text()) == json.loads(json.dumps(crd()))
    rules = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert rules["x-kubernetes-validations"]


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(-2, 300)
        case "number":
            return st.floats(-1, 2, allow_nan=False)
    return st.sampled_from(["", "/tmp/x", "http://collector:4318"])


ENGINE = spec_schema()["properties"]["engine"]["properties"]


@given(st.fixed_dictionaries({}, optional={name: _values(node) for name, node in ENGINE.items()}))
@settings(max_examples=examples(100))
def test_engine_settings_are_taken_where_a_worker_takes_them(engine: dict[str, Any]) -> None:
    names = {name: variable(name).removeprefix("PANDO_WORKER_").lower() for name in engine}
    try:
        parse(manifest("default", engine=engine))
        is_fine = True
    except InvalidPool:
        is_fine = False
    try:
        WorkerSettings(model="m", **{names[name]: value for name, value in engine.items()})
    except ValidationError:
        assert not is_fine, engine
    else:
        assert is_fine, list(problems({"model": "m", "engine": engine}, spec_schema(), "spec"))
