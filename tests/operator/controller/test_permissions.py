"""The operator needs exactly the permissions that its page lists."""

import re
from pathlib import Path

from pando_operator.kube.resources import Object
from tests.operator.controller.conftest import FAST, Scene

PAGE = Path(__file__).parents[3] / "docs" / "operator.md"
USER = "operator"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


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


def grant(scene: Scene, rules: list[Object]) -> None:
    metadata = {"name": USER, "namespace": scene.namespace}
    path = f"{RBAC}/{scene.namespace}"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    scene.server.call("POST", f"{path}/roles", {"metadata": metadata, "rules": rules})
    binding = {"metadata": metadata, "roleRef": role, "subjects": [subject]}
    scene.server.call("POST", f"{path}/rolebindings", binding)


async def test_the_listed_permissions_are_enough(scene: Scene) -> None:
    rules = listed()
    assert len(rules) == 9
    grant(scene, rules)
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
