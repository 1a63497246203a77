"""The installed chart: it answers, runs restricted, and has exactly the permissions it needs."""

import pytest

from tests.cluster.conftest import POOL
from tests.cluster.kube import POOLS, ApiError, Cluster, Object, name_of, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL, MODEL, NAME, Release
from tests.helm.chart import containers
from tests.helm.restricted import violations

# The operator's permissions in its namespace, in addition to those of every account. The lease has
# a
# separate row because it is the only object with a name.
ALLOWED = {
    ("pando.dev", "workerpools", ""): {"list", "watch"},
    ("pando.dev", "workerpools/status", ""): {"patch"},
    ("pando.dev", "workerpools/scale", ""): {"patch"},
    ("apps", "deployments", ""): {"list", "watch", "create", "patch"},
    ("", "services", ""): {"list", "watch", "create", "patch"},
    ("policy", "poddisruptionbudgets", ""): {"list", "watch", "create", "patch"},
    ("", "pods", ""): {"list", "watch", "patch"},
    ("", "pods/status", ""): {"patch"},
    ("", "events", ""): {"create", "patch"},
    ("", "nodes", ""): {"list", "watch"},
    ("coordination.k8s.io", "leases", f"{NAME}-operator"): {"get", "update"},
}
RULE = "spec.scaling.maxReplicas must be at least minReplicas"


def test_a_chat_request_answers(load: LoadPod) -> None:
    answer = load.chat("What does shutil.copy do?")
    assert answer.status == 200, answer.text
    assert answer.json["choices"][0]["message"]["content"]
    assert answer.headers["x-pando-replica"].startswith(POOL)


def test_helms_own_test_passes(release: Release) -> None:
    release.test()


def test_every_pod_runs_restricted_on_a_read_only_root(cluster: Cluster, load: LoadPod) -> None:
    pods = cluster.pods("")
    components = {pod["metadata"]["labels"].get("app.kubernetes.io/component") for pod in pods}
    assert {"router", "operator", "redis", "worker"} <= components
    assert {name_of(pod): violations(pod) for pod in pods if violations(pod)} == {}
    writable = [
        name_of(pod)
        for pod in pods
        for container in containers(pod)
        if not container["securityContext"].get("readOnlyRootFilesystem")
    ]
    assert writable == []


def test_no_pod_but_the_operators_has_a_token(cluster: Cluster, load: LoadPod) -> None:
    with_token = {
        pod["metadata"]["labels"].get("app.kubernetes.io/component")
        for pod in cluster.pods("")
        for container in pod["spec"]["containers"]
        for mount in container.get("volumeMounts", ())
        if mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    }
    assert with_token == {"operator"}


def test_the_operator_may_do_what_it_does_and_nothing_else(
    cluster: Cluster, release: Release
) -> None:
    [account] = {pod["spec"]["serviceAccountName"] for pod in cluster.component("operator")}
    own = _rules(cluster, account)
    everyones = _rules(cluster, "default")
    assert {key: verbs for key, verbs in own.items() if verbs != everyones.get(key)} == ALLOWED


def _rules(cluster: Cluster, account: str) -> dict[tuple[str, str, str], set[str]]:
    """Verbs by API group, resource and name, as the API server answers for this account."""
    rules: dict[tuple[str, str, str], set[str]] = {}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    user = f"system:serviceaccount:{cluster.namespace}:{account}"
    review = cluster.impersonate(user).create(path, {"spec": {"namespace": cluster.namespace}})
    for rule in review["status"]["resourceRules"]:
        for group in rule.get("apiGroups", ("",)):
            for resource in rule.get("resources", ()):
                for name in rule.get("resourceNames", ("",)):
                    rules.setdefault((group, resource, name), set()).update(rule["verbs"])
    return rules


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"scaling": {"minReplicas": 1, "maxReplicas": 2, "target": {"pressure": 7}}}, "pressure"),
        ({"scaling": {"minReplicas": "one", "maxReplicas": 2}}, "spec.scaling.minReplicas"),
        ({"engine": {"maxTotalTokens": -1}}, "spec.engine.maxTotalTokens"),
    ],
)
def test_the_api_server_refuses_a_wrong_value_by_its_field(
    cluster: Cluster, release: Release, wrong: Object, field: str
) -> None:
    with pytest.raises(ApiError, match=field) as refused:
        cluster.create(POOLS, _pool("wrong", {"model": MODEL} | wrong))
    assert refused.value.status == 422


def test_a_pool_against_the_rules_gets_a_message_that_names_the_field(
    cluster: Cluster, release: Release
) -> None:
    """The API server refuses it if it supports such rules (1.25 and newer), else the operator."""
    scaling = CHAT_POOL["scaling"] | {"minReplicas": 5, "maxReplicas": 2}
    try:
        cluster.create(POOLS, _pool("wrong", CHAT_POOL | {"scaling": scaling}))
    except ApiError as error:
        assert RULE in error.body
        return
    try:
        said = wait_until("the operator says what is wrong", lambda: _degraded(cluster), 30)
        assert RULE in said
        assert cluster.workers("wrong") == []
        assert any(RULE in event["message"] for event in cluster.events("WorkerPool", "wrong"))
    finally:
        cluster.delete(f"{POOLS}/wrong")


def _degraded(cluster: Cluster) -> str:
    conditions = cluster.pool_status("wrong").get("conditions", ())
    return next(
        (
            str(condition["message"])
            for condition in conditions
            if (condition["type"], condition["status"]) == ("Degraded", "True")
        ),
        "",
    )


def _pool(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": spec,
    }
