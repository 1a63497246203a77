"""What the chart renders, for the oldest and the current Kubernetes and all kinds of values."""

from typing import Any

import pytest
import yaml

from pando_operator.resource.pool import WorkerPool
from pando_operator.settings import OperatorSettings
from pando_router.settings import RouterSettings
from tests.helm.chart import (
    CHART,
    CURRENT,
    OLDEST,
    VALUES_FILES,
    declared_pools,
    of_kind,
    one,
    pods,
    render,
    settings_file,
    values_of,
)
from tests.helm.kubernetes_schemas import FOREIGN, errors

BOTH = pytest.mark.parametrize("kube", [OLDEST, CURRENT])
ALL_VALUES = pytest.mark.parametrize("values", VALUES_FILES)


@BOTH
@ALL_VALUES
def test_every_object_is_one_that_the_cluster_knows(values: str, kube: str) -> None:
    manifests = render(values_of(values), kube)
    assert len(manifests) > 15
    assert not [error for manifest in manifests for error in errors(manifest, kube)]


def test_a_field_that_the_cluster_does_not_know_is_found() -> None:
    manifests = render({})
    deployment = one(manifests, "Deployment", "pando-router")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert "livenesProbe" in errors(deployment, OLDEST)[0]
    assert "livenesProbe" in errors(deployment, CURRENT)[0]


def test_all_kinds_that_the_chart_can_make_are_rendered_by_these_values() -> None:
    """So that nothing goes unchecked: kinds are counted by their lines in the templates."""
    written = {
        line.removeprefix("kind: ").strip()
        for file in (CHART / "templates").rglob("*.yaml")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("kind: ") and "{{" not in line
    }
    rendered = {m["kind"] for values in VALUES_FILES for m in render(values_of(values))}
    assert written | {"ClusterRole", "ClusterRoleBinding", "Role"} <= rendered
    assert rendered >= FOREIGN


@BOTH
@ALL_VALUES
def test_no_two_objects_have_one_name(values: str, kube: str) -> None:
    names = [(m["kind"], m["metadata"]["name"]) for m in render(values_of(values), kube)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kube", "pdb", "hpa"),
    [
        ("v1.20.2", "policy/v1beta1", "autoscaling/v2beta2"),
        ("v1.21.0", "policy/v1", "autoscaling/v2beta2"),
        ("v1.23.0", "policy/v1", "autoscaling/v2"),
        ("v1.37.0", "policy/v1", "autoscaling/v2"),
    ],
)
def test_apis_are_the_newest_that_the_cluster_has(kube: str, pdb: str, hpa: str) -> None:
    manifests = render(values_of("everything-values.yaml"), kube)
    assert {m["apiVersion"] for m in of_kind(manifests, "PodDisruptionBudget")} == {pdb}
    assert {m["apiVersion"] for m in of_kind(manifests, "HorizontalPodAutoscaler")} == {hpa}


def test_the_crd_is_kept_and_has_cel_rules_where_the_cluster_knows_them() -> None:
    old, new = (
        one(render({}, kube), "CustomResourceDefinition", "workerpools.pando.dev")
        for kube in ("v1.24.0", "v1.25.0")
    )
    assert old["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    written = yaml.safe_load((CHART / "files/workerpool-crd.yaml").read_text(encoding="utf-8"))
    assert new["spec"] == written["spec"]
    assert "x-kubernetes-validations" in str(written["spec"])
    assert old["spec"] == without(written["spec"], "x-kubernetes-validations")


def without(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: without(one, key) for name, one in value.items() if name != key}
    return [without(one, key) for one in value] if isinstance(value, list) else value


def test_the_crd_can_be_another_releases() -> None:
    assert not of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition")


@ALL_VALUES
def test_pools_are_worker_pools_that_the_operator_takes(values: str) -> None:
    pools = declared_pools(render(values_of(values)))
    for pool in pools:
        assert pool["metadata"]["namespace"] == "llm"
        WorkerPool.model_validate(pool)  # unknown fields are errors
    assert len(pools) == {"bare-values.yaml": 0, "everything-values.yaml": 2}.get(values, 1)


def test_nothing_but_the_operator_sets_a_pools_replicas() -> None:
    (default,) = declared_pools(render({}))
    assert "replicas" not in default["spec"]
    (manual,) = declared_pools(render(values_of("external-redis-values.yaml")))
    assert "replicas" not in manual["spec"] and "scaling" not in manual["spec"]


def test_an_autoscaled_router_has_no_replicas_that_an_upgrade_would_reset() -> None:
    on, off = (
        one(render({"router": {"autoscaling": {"enabled": e}}}), "Deployment", "pando-router")
        for e in (True, False)
    )
    assert "replicas" not in on["spec"]
    assert off["spec"]["replicas"] == 2


def test_pools_share_the_hubs_token_and_the_model_cache() -> None:
    manifests = render(values_of("everything-values.yaml"))
    for pool in declared_pools(manifests):
        template = pool["spec"]["template"]
        token = {"name": "hub", "key": "token"}
        assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}} in template["env"]
        claim = {"name": "models", "persistentVolumeClaim": {"claimName": "grove-models"}}
        assert claim in template["volumes"]
    one(manifests, "PersistentVolumeClaim", "grove-models")


@ALL_VALUES
def test_settings_files_are_taken_by_router_and_operator(values: str) -> None:
    manifests = render(values_of(values))
    router = settings_file(manifests, "router")
    # Files that are mounted in the pod alone.
    assert router.pop("api_keys", "/etc/pando/keys") == "/etc/pando/keys"
    for upstream in router.get("upstream", ()):
        upstream.pop("api_key_file", None)
    RouterSettings(**router)
    OperatorSettings(**settings_file(manifests, "operator"))


def test_routers_wait_for_declared_pools_from_the_first_second() -> None:
    router = settings_file(render(values_of("everything-values.yaml")), "router")
    assert router["expected_pools"] == {"default": "pando-tiny", "qwen": "Qwen3-8B"}


@ALL_VALUES
def test_a_router_has_time_to_leave_and_to_drain(values: str) -> None:
    manifests = render(values_of(values))
    settings = RouterSettings(
        **{
            name: value
            for name, value in settings_file(manifests, "router").items()
            if name.endswith("_seconds")
        }
    )
    (pod,) = (p for name, p in pods(manifests) if name.endswith("-router"))
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert grace >= settings.leave_seconds + settings.drain_seconds + 15
    assert settings.leave_seconds >= 5  # Service endpoints take a moment to change


def test_a_setting_that_needs_a_restart_rolls_routers_and_another_does_not() -> None:
    def template(**settings: Any) -> Any:
        values = {"router": {"settings": settings}}
        return one(render(values), "Deployment", "pando-router")["spec"]["template"]

    assert template() == template(max_tries=5)
    for name, value in {"processes": 2, "explain_last": 5, "trace_sample": 0.5}.items():
        assert template() != template(**{name: value})


def test_a_changed_setting_rolls_the_operator_and_redis() -> None:
    def annotations(values: dict[str, Any], name: str) -> Any:
        template = one(render(values), "Deployment", name)["spec"]["template"]
        return template["metadata"]["annotations"]

    changes: dict[str, dict[str, Any]] = {
        "pando-operator": {"operator": {"settings": {"period": 1}}},
        "pando-redis": {"redis": {"maxmemory": "1gb"}},
    }
    for name, values in changes.items():
        assert annotations({}, name) == annotations({"log": {"level": "info"}}, name)
        assert annotations({}, name) != annotations(values, name)


def test_pods_roll_with_images_and_not_with_the_charts_version() -> None:
    for _, pod in pods(render({})):
        if "helm.sh/hook" not in pod["metadata"].get("annotations", {}):
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(
                pod["metadata"]["labels"]
            )


def test_images_of_a_mirror_keep_their_paths() -> None:
    manifests = render(values_of("external-redis-values.yaml"))
    for _, pod in pods(manifests):
        for container in pod["spec"]["containers"]:
            image = "mirror.example.com:5000/pando-serving/pando-"
            assert container["image"].startswith(image)
            assert container["imagePullPolicy"] == "Always"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "regcred"}]
    operator = settings_file(manifests, "operator")
    assert operator["worker_image"].startswith("mirror.example.com:5000/pando-serving/")
    assert operator["worker_image_pull_secrets"] == ["regcred"]


def test_an_external_redis_installs_none() -> None:
    manifests = render(values_of("external-redis-values.yaml"))
    assert not [m for m in manifests if "redis" in m["metadata"]["name"]]
