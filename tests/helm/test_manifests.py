"""What the chart renders, for the oldest and the current Kubernetes and all kinds of values."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.scaling import Drain
from pando_operator.settings import OperatorSettings
from pando_router.configuration.settings import RouterSettings
from tests.helm.chart import (
    CHART,
    CURRENT,
    OLDEST,
    VALUES_FILES,
    As,
    containers,
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
    """Otherwise a kind would go unchecked. Kinds are counted by their lines in the templates."""
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
    # Files that exist only in the pod.
    assert router.pop("api_keys", "/etc/pando/keys") == "/etc/pando/keys"
    for upstream in router.get("upstream", ()):
        upstream.pop("api_key_file", None)
    RouterSettings(**router)
    OperatorSettings(**settings_file(manifests, "operator"))


def test_routers_wait_for_declared_pools_from_the_first_second() -> None:
    router = settings_file(render(values_of("everything-values.yaml")), "router")
    assert router["expected_pools"] == {"default": "smollm2", "qwen": "Qwen3-8B"}


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


@pytest.mark.parametrize(("timeout_s", "drain_s"), [(None, 300), (60, 300), (1200, 1200)])
def test_routers_drain_as_long_as_the_workers_of_all_pools(
    timeout_s: int | None, drain_s: int
) -> None:
    """A router that ends sooner would cut a stream that its worker is still computing."""
    assert Drain().timeout_seconds == 300
    scaling = {"drain": {"timeoutSeconds": timeout_s}} if timeout_s else {}
    manifests = render({"pools": {"other": {"model": "m", "scaling": scaling}}})
    assert settings_file(manifests, "router")["drain_seconds"] == drain_s
    (pod,) = (p for name, p in pods(manifests) if name.endswith("-router"))
    assert pod["spec"]["terminationGracePeriodSeconds"] == drain_s + 5 + 15
    own = render({"router": {"settings": {"drain_seconds": 20}}})
    assert settings_file(own, "router")["drain_seconds"] == 20


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


def test_a_new_version_of_the_chart_restarts_no_pod(tmp_path: Path) -> None:
    newer = tmp_path / "pando"
    shutil.copytree(CHART, newer)
    lines = (newer / "Chart.yaml").read_text().splitlines()
    lines = ["version: 9.9.9" if line.startswith("version: ") else line for line in lines]
    (newer / "Chart.yaml").write_text("\n".join(lines))
    old, new = (
        {m["metadata"]["name"]: m["spec"]["template"] for m in of_kind(manifests, "Deployment")}
        for manifests in (render({}), render({}, who=As(chart=newer)))
    )
    assert old == new


@pytest.mark.parametrize(
    ("name", "namespace"), [("2024", "123"), ("n", "on"), ("pando-" + "x" * 47, "y" * 63)]
)
def test_any_name_that_kubernetes_allows_is_one(name: str, namespace: str) -> None:
    """YAML does not read 123 and `on` as text; names and labels have at most 63 characters."""
    for manifest in render(values_of("everything-values.yaml"), OLDEST, As(name, namespace)):
        assert not errors(manifest, OLDEST)
        labels = manifest["metadata"].get("labels", {})
        assert all(isinstance(value, str) and len(value) <= 63 for value in labels.values())
        if manifest["kind"] in ("Service", "Job", "Deployment"):
            assert len(manifest["metadata"]["name"]) <= 63
        for subject in manifest.get("subjects", ()):
            assert subject["namespace"] == namespace


def test_hooks_run_where_their_component_does() -> None:
    where: dict[str, Any] = {
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
    }
    manifests = dict(pods(render({"router": where, "operator": where})))
    for name in ("Job pando-pools", "Job pando-pools-delete", "Pod pando-test-chat"):
        assert {field: manifests[name]["spec"].get(field) for field in where} == where, name


@ALL_VALUES
def test_every_mount_is_of_a_volume(values: str) -> None:
    for name, pod in pods(render(values_of(values))):
        volumes = [volume["name"] for volume in pod["spec"].get("volumes", ())]
        assert len(volumes) == len(set(volumes)), name
        for container in containers(pod):
            mounted = [mount["name"] for mount in container.get("volumeMounts", ())]
            assert set(mounted) <= set(volumes), name


def test_a_private_authority_of_redis_reaches_all_its_clients() -> None:
    manifests = render(values_of("external-redis-values.yaml"))
    (pool,) = declared_pools(manifests)
    mounts = {
        name: [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
        for name, pod in pods(manifests)
        if name.startswith("Deployment")
    } | {"pool": [mount["mountPath"] for mount in pool["spec"]["template"]["volumeMounts"]]}
    assert len(mounts) == 3
    assert all("/etc/redis-ca" in paths for paths in mounts.values())


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


def test_a_path_is_all_that_is_reached_from_outside() -> None:
    router = {
        "ingress": {"enabled": True, "hosts": ["a"], "path": "/v1"},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "web"}], "path": "/v1"},
    }
    manifests = render({"router": router})
    (rule,) = one(manifests, "Ingress", "pando-router")["spec"]["rules"]
    assert [path["path"] for path in rule["http"]["paths"]] == ["/v1"]
    (rule,) = one(manifests, "HTTPRoute", "pando-router")["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]


def test_an_external_redis_installs_none() -> None:
    manifests = render(values_of("external-redis-values.yaml"))
    assert not [m for m in manifests if "redis" in m["metadata"]["name"]]
