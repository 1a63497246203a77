"""The operator needs exactly the permissions that its page lists."""

import re
from pathlib import Path

import pytest

from pando_operator.kube.errors import NotFound
from pando_operator.kube.resources import DEPLOYMENTS, WORKER_POOLS, Key, Object
from tests.operator.controller.conftest import FAST, Scene

PAGE = Path(__file__).parents[3] / "docs" / "operator.md"
USER = "operator"
SUBJECT = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"


def listed() -> list[Object]:
    """The rules of a Role, from the page's table."""
    rules = []
    table = PAGE.read_text().partition("## Permissions")[2]
    for what, verbs in re.findall(r"^\| `([a-z0-9./]+)`[^|]*\| ([a-z, ]+) \|", table, re.M):
        name, _, subresource = what.partition("/")
        plural, _, group = name.partition(".")
        resource = f"{plural}/{subresource}" if subresource else plural
        rules.append({"apiGroups": [group], "resources": [resource], "verbs": verbs.split(", ")})
    return rules


def grant(scene: Scene, rules: list[Object], namespace: str = "") -> None:
    metadata = {"name": USER, "namespace": namespace or scene.namespace}
    path = f"{RBAC}/namespaces/{namespace or scene.namespace}"
    role = {"apiGroup": GROUP, "kind": "Role", "name": USER}
    scene.server.call("POST", f"{path}/roles", {"metadata": metadata, "rules": rules})
    binding = {"metadata": metadata, "roleRef": role, "subjects": [SUBJECT]}
    scene.server.call("POST", f"{path}/rolebindings", binding)


def grant_cluster_wide(scene: Scene, rules: list[Object]) -> None:
    metadata = {"name": scene.namespace}
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": scene.namespace}
    scene.server.call("POST", f"{RBAC}/clusterroles", {"metadata": metadata, "rules": rules})
    binding = {"metadata": metadata, "roleRef": role, "subjects": [SUBJECT]}
    scene.server.call("POST", f"{RBAC}/clusterrolebindings", binding)
    scene.closing.callback(
        scene.server.call, "DELETE", f"{RBAC}/clusterrolebindings/{scene.namespace}"
    )


async def test_the_listed_permissions_are_enough(scene: Scene) -> None:
    rules = listed()
    assert len(rules) == 11
    grant_cluster_wide(scene, [rule for rule in rules if rule["resources"] == ["nodes"]])
    grant(scene, [rule for rule in rules if rule["resources"] != ["nodes"]])
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(USER))):
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=2)
        await scene.serving(2)
        await scene.change(replicas=1)
        await scene.serving(1)
        await scene.until(lambda: scene.events("ScaledDown"), "the event")
    assert not [line for line in scene.said if "forbidden" in line.lower()]


async def test_a_missing_permission_is_named_in_the_status(scene: Scene) -> None:
    rules = listed()
    for rule in rules:
        if rule["resources"] == ["services"]:
            rule["verbs"] = ["list", "watch"]
    grant(scene, rules)
    async with scene.operator(kubeconfig=str(scene.server.kubeconfig(USER))):
        await scene.make(scaling={"mode": "Manual", **FAST}, replicas=1)

        async def forbidden() -> bool:
            return (await scene.condition("Degraded")).get("reason") == "Forbidden"

        await scene.until(forbidden, "Degraded")
        message = (await scene.condition("Degraded"))["message"]
        assert 'cannot patch resource "services"' in message
    assert scene.cluster.workers == {}


async def test_a_namespace_that_it_may_not_watch_stops_no_other(scene: Scene) -> None:
    other = f"{scene.namespace}-other"
    scene.server.call("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    grant(scene, listed())
    grant(scene, [rule for rule in listed() if rule["resources"] != ["pods"]], other)
    scaling = {"mode": "Manual", **FAST}
    kind = {"apiVersion": WORKER_POOLS.api_version, "kind": WORKER_POOLS.kind}
    body = kind | {"metadata": {"name": "theirs", "namespace": other}}
    theirs = Key(other, "theirs")
    kubeconfig = str(scene.server.kubeconfig(USER))
    async with scene.operator(kubeconfig=kubeconfig, namespaces=(scene.namespace, other)):
        await scene.make(scaling=scaling, replicas=1)
        await scene.kube.create(WORKER_POOLS, body | {"spec": {"model": "m", "replicas": 1}})
        await scene.serving(1)

        async def named() -> bool:
            status = (await scene.kube.get(WORKER_POOLS, theirs)).get("status", {})
            found = {one["type"]: one for one in status.get("conditions", ())}
            said = found.get("Degraded", {"reason": "", "message": ""})
            return said["reason"] == "Forbidden" and 'list resource "pods"' in said["message"]

        await scene.until(named, "the condition names the permission")
    with pytest.raises(NotFound):  # it acts on nothing that it cannot see
        await scene.kube.get(DEPLOYMENTS, theirs)
