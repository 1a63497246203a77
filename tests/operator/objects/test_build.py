"""A pool's objects: Kubernetes accepts them, and a worker can read them."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pando_operator.kube.client import Kube
from pando_operator.kube.resources import DEPLOYMENTS, SERVICES, Key
from pando_operator.objects.build import deployment, disruption_budget, service
from pando_operator.objects.labels import labels, selector, selector_text
from pando_operator.resource.check import problems, unknown
from pando_operator.resource.parse import parse, spec_schema
from pando_operator.resource.pool import WorkerPool
from pando_operator.settings import OperatorSettings
from pando_worker.settings import WorkerSettings
from tests.cluster.speech_pool import worker_pool

WHISPER = Path(__file__).parents[3] / "examples" / "audio" / "pool.yaml"
SETTINGS = OperatorSettings(
    worker_image="registry/pando-worker:1",
    worker_variables={"PANDO_LOG_FORMAT": "json"},
)
FULL: dict[str, Any] = {
    "tensorParallelSize": 2,
    "servedModelName": "llama",
    "engine": {"device": "cuda", "memFractionStatic": 0.85, "radixCache": False, "pageSize": 32},
    "template": {
        "image": "mine/worker:2",
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "mine"}],
        "resources": {"limits": {"nvidia.com/gpu": 2, "memory": "8Gi"}, "requests": {"cpu": 1}},
        "env": [
            {
                "name": "MEMORY",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": 1}},
            },
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
            {"name": "PANDO_LOG_FORMAT", "value": "human"},
        ],
        "envFrom": [{"configMapRef": {"name": "more"}}],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": 1000000}},
        ],
        "volumeMounts": [
            {"name": "models", "mountPath": "/cache/huggingface"},
            {"name": "models", "mountPath": "/tmp/", "subPath": "tmp"},
        ],
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "runtimeClassName": "nvidia",
        "priorityClassName": "high",
        "serviceAccountName": "workers",
        "securityContext": {"readOnlyRootFilesystem": False},
        "podSecurityContext": {"runAsUser": 1000},
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
        "terminationGracePeriodSeconds": 900,
    },
    "scaling": {"maxReplicas": 3, "drain": {"timeoutSeconds": 600}},
}


def pool(namespace: str = "serving", **spec: Any) -> WorkerPool:
    metadata = {"name": "llama", "namespace": namespace, "uid": "7f1f"}
    return parse({"metadata": metadata, "spec": {"model": "org/Llama-8B", **spec}})


def pod_of(built: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = built["spec"]["template"]["spec"]
    return found


def settings_of(built: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    """The settings that a worker reads from its container's variables."""
    for entry in pod_of(built)["containers"][0]["env"]:
        value = entry.get("value", "redis://redis:6379")
        if entry["name"] == "PANDO_WORKER_REPLICA":
            value = "llama-1"
        monkeypatch.setenv(entry["name"], value.replace("$(POD_IP)", "10.0.0.7"))
    return WorkerSettings.model_validate({})


@pytest.mark.parametrize("spec", [{}, FULL], ids=["least", "full"])
@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_objects_are_what_kubernetes_knows(spec: dict[str, Any], version: str) -> None:
    for built in (deployment(pool(**spec), SETTINGS), service(pool(**spec))):
        kubernetes_validate.validate(json.loads(json.dumps(built)), version, strict=True)


@pytest.mark.parametrize("spec", [{}, FULL], ids=["least", "full"])
async def test_applying_again_changes_nothing_and_keeps_the_scalers_replicas(
    kube: Kube, namespace: str, spec: dict[str, Any]
) -> None:
    one = pool(namespace, **spec)
    key = Key(namespace, "llama")
    await kube.apply(DEPLOYMENTS, deployment(one, SETTINGS), manager="pando-operator")
    await kube.apply(
        DEPLOYMENTS,
        {"metadata": {"name": one.name, "namespace": namespace}, "spec": {"replicas": 3}},
        manager="pando-scaler",
    )
    await kube.apply(SERVICES, service(one), manager="pando-operator")
    first = await kube.get(DEPLOYMENTS, key)

    await kube.apply(DEPLOYMENTS, deployment(one, SETTINGS), manager="pando-operator")

    again = await kube.get(DEPLOYMENTS, key)
    assert again["spec"]["replicas"] == 3
    for found in (first, again):
        # Old API servers count the time of an apply that changes nothing as a change.
        del found["metadata"]["resourceVersion"], found["metadata"]["managedFields"]
    assert again == first


def test_a_worker_reads_its_settings_from_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(deployment(pool(**FULL), SETTINGS), monkeypatch)
    assert settings.model == "org/Llama-8B"
    assert settings.served_model_name == "llama"
    assert settings.pool == "serving/llama", "its namespace is not the operator's"
    assert settings.replica == "llama-1"
    assert settings.url == "http://10.0.0.7:30000"
    assert settings.redis == "redis://redis:6379"
    assert settings.tensor_parallel_size == 2
    assert settings.drain_seconds == 600
    assert settings.device == "cuda"
    assert settings.mem_fraction_static == 0.85
    assert settings.radix_cache is False
    assert settings.page_size == 32


def test_the_example_with_whisper_is_a_pool_whose_workers_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = yaml.safe_load(WHISPER.read_text(encoding="utf-8"))
    assert not list(problems(given["spec"], spec_schema(), "spec"))
    assert not list(unknown(given["spec"], spec_schema()))
    built = deployment(parse(given), SETTINGS)
    kubernetes_validate.validate(json.loads(json.dumps(built)), "1.37", strict=True)
    settings = settings_of(built, monkeypatch)
    assert (settings.model, settings.served_model_name) == ("openai/whisper-base", "whisper-base")
    assert settings.device == "cpu", "where encoder-decoders run"
    assert settings.max_total_tokens == 65536
    assert settings.max_audio_seconds == 600


def test_the_pool_of_the_clusters_test_of_speech_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = worker_pool()
    assert not list(problems(given["spec"], spec_schema(), "spec"))
    assert not list(unknown(given["spec"], spec_schema()))
    built = deployment(parse(given), SETTINGS)
    kubernetes_validate.validate(json.loads(json.dumps(built)), "1.37", strict=True)
    settings = settings_of(built, monkeypatch)
    (volume,) = given["spec"]["template"]["volumeMounts"]
    assert (settings.model, settings.max_audio_seconds) == (volume["mountPath"], 60)


def test_the_name_in_the_api_is_the_models_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(deployment(pool(), SETTINGS), monkeypatch)
    assert settings.served_model_name == pool().spec.model_name == "Llama-8B"


def test_redis_comes_by_reference_and_its_password_is_nowhere() -> None:
    env = pod_of(deployment(pool(), SETTINGS))["containers"][0]["env"]
    entry = next(entry for entry in env if entry["name"] == "PANDO_WORKER_REDIS")
    assert entry == {
        "name": "PANDO_WORKER_REDIS",
        "valueFrom": {"secretKeyRef": {"name": "pando-redis", "key": "url"}},
    }


def test_pods_are_restricted_and_write_only_to_their_own_volumes() -> None:
    pod = pod_of(deployment(pool(), SETTINGS))
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/tmp", "/cache"}
    assert all("emptyDir" in volume for volume in pod["volumes"])


def test_a_template_goes_before_what_the_operator_would_do() -> None:
    pod = pod_of(deployment(pool(**FULL), SETTINGS))
    container = pod["containers"][0]
    names = [entry["name"] for entry in container["env"]]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert container["image"] == "mine/worker:2"
    assert container["securityContext"]["readOnlyRootFilesystem"] is False
    assert pod["securityContext"]["runAsUser"] == 1000
    assert pod["terminationGracePeriodSeconds"] == 900
    assert names.count("PANDO_LOG_FORMAT") == 1
    assert {"name": "PANDO_LOG_FORMAT", "value": "human"} in container["env"]
    assert sorted(mounts) == ["/cache", "/cache/huggingface", "/dev/shm", "/tmp/"]


def test_a_cluster_autoscaler_may_remove_a_workers_node() -> None:
    """Worker's own volumes are scratch; those of the template may hold anything."""
    built = deployment(pool(tensorParallelSize=2), SETTINGS)
    volumes = [volume["name"] for volume in pod_of(built)["volumes"]]
    annotations = built["spec"]["template"]["metadata"]["annotations"]
    name = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    assert annotations[name].split(",") == volumes == ["pando-tmp", "pando-cache", "pando-shm"]
    mine = deployment(pool(template={"annotations": {name: "none"}}), SETTINGS)
    assert mine["spec"]["template"]["metadata"]["annotations"][name] == "none"


@pytest.mark.parametrize("minor", [25, 37])
def test_node_drains_evict_as_many_replicas_as_the_spec_allows(minor: int) -> None:
    budget = disruption_budget(pool(maxUnavailable=2), minor, moves=False)
    assert budget["spec"]["maxUnavailable"] == 2
    assert disruption_budget(pool(), minor, moves=True)["spec"]["maxUnavailable"] == 0
    assert ("unhealthyPodEvictionPolicy" in budget["spec"]) == (minor >= 27)
    assert budget["spec"]["selector"]["matchLabels"] == selector("llama")
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    kubernetes_validate.validate(kind | budget, f"1.{minor}", strict=True)


def test_a_null_takes_the_operators_value_away() -> None:
    """OpenShift chooses a uid for each namespace and refuses pods that name another."""
    ids = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    template = {"podSecurityContext": ids, "securityContext": {"readOnlyRootFilesystem": None}}
    pod = pod_of(deployment(pool(template=template), SETTINGS))
    assert not ids.keys() & pod["securityContext"].keys()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "readOnlyRootFilesystem" not in pod["containers"][0]["securityContext"]


def test_kubernetes_waits_longer_than_a_worker_drains_and_hands_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for drain in (1, 300, 7200):
        one = pool(scaling={"maxReplicas": 2, "drain": {"timeoutSeconds": drain}})
        built = deployment(one, SETTINGS)
        settings = settings_of(built, monkeypatch)
        assert settings.hand_off_seconds == min(70, drain)
        longest = max(settings.drain_seconds, settings.hand_off_seconds)
        assert pod_of(built)["terminationGracePeriodSeconds"] > longest + 10


def test_a_new_replica_serves_before_an_old_one_leaves_and_only_through_its_gate() -> None:
    built = deployment(pool(), SETTINGS)
    assert built["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert pod_of(built)["readinessGates"] == [{"conditionType": "pando.dev/serving"}]
    assert "replicas" not in built["spec"]


def test_pods_name_the_template_that_made_them() -> None:
    def digest(**spec: Any) -> str:
        metadata = deployment(pool(**spec), SETTINGS)["spec"]["template"]["metadata"]
        return str(metadata["annotations"]["pando.dev/template"])

    assert digest() == digest() == digest(replicas=7, scaling={"maxReplicas": 9})
    others = [digest(**change) for change in ({"engine": {"pageSize": 32}}, FULL)]
    assert len({digest(), *others}) == 3


def test_objects_belong_to_their_pool() -> None:
    for built in (deployment(pool(), SETTINGS), service(pool())):
        (owner,) = built["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("WorkerPool", "llama", "7f1f")
        assert owner["controller"] is True
    built = deployment(pool(), SETTINGS)
    assert selector("llama").items() <= labels("llama").items()
    assert built["spec"]["template"]["metadata"]["labels"] == labels("llama")
    text = "app.kubernetes.io/name=pando-worker,pando.dev/pool=llama"
    assert selector_text("llama") == text
