"""Pods are restricted, secrets are references, and permissions are minimal."""

import json
import re
from typing import Any

import pytest

from pando.logs import LogSettings
from pando_operator.settings import OperatorSettings
from pando_router.configuration.settings import RouterSettings
from tests.helm.chart import (
    CURRENT,
    OLDEST,
    VALUES_FILES,
    Manifest,
    containers,
    of_kind,
    one,
    pods,
    render,
    settings_file,
    values_of,
)
from tests.helm.restricted import violations

ALL_VALUES = pytest.mark.parametrize("values", VALUES_FILES)


@pytest.mark.parametrize("kube", [OLDEST, CURRENT])
@ALL_VALUES
def test_every_pod_is_restricted(values: str, kube: str) -> None:
    found = dict(pods(render(values_of(values), kube)))
    assert len(found) >= 4
    assert {name: wrong for name, pod in found.items() if (wrong := violations(pod))} == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowPrivilegeEscalation", True),
        ("capabilities", {"drop": ["NET_RAW"]}),
        ("capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        ("runAsNonRoot", False),
        ("runAsUser", 0),
        ("privileged", True),
        ("seccompProfile", {"type": "Unconfined"}),
    ],
)
def test_a_pod_that_is_not_restricted_is_found(field: str, value: Any) -> None:
    _, pod = next(pods(render({})))
    pod["spec"]["containers"][0]["securityContext"][field] = value
    assert violations(pod)


@ALL_VALUES
def test_roots_are_read_only_and_requests_are_said(values: str) -> None:
    for name, pod in pods(render(values_of(values))):
        assert pod["spec"]["enableServiceLinks"] is False, name
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name


@ALL_VALUES
def test_only_pods_that_call_the_api_server_have_a_token(values: str) -> None:
    with_token = {
        name.rsplit("-", 1)[1]
        for name, pod in pods(render(values_of(values)))
        if pod["spec"].get("automountServiceAccountToken") is not False
    }
    assert with_token == {"operator", "pools", "delete"}  # the last two are hooks


@ALL_VALUES
def test_secrets_are_neither_in_arguments_nor_in_variables(values: str) -> None:
    manifests = render(values_of(values))
    secrets = {
        value
        for secret in of_kind(manifests, "Secret")
        for value in secret["stringData"].values()
        if not value.startswith("tenants:")
    }
    elsewhere = json.dumps([m for m in manifests if m["kind"] != "Secret"])
    assert not [secret for secret in secrets if secret in elsewhere]
    for _, pod in pods(manifests):
        for container in containers(pod):
            for variable in container.get("env", ()):
                if re.search("REDIS|KEY$|TOKEN|PASSWORD", variable["name"]):
                    assert "value" not in variable


def test_redis_has_a_password_that_is_in_its_secret_alone() -> None:
    secret = one(render({}), "Secret", "pando-redis")["stringData"]
    assert re.fullmatch("[A-Za-z0-9]{32}", secret["password"])
    assert secret["url"] == f"redis://:{secret['password']}@pando-redis.llm.svc:6379/0"


@ALL_VALUES
def test_every_variable_is_a_setting(values: str) -> None:
    known = {
        prefix + name.upper()
        for prefix, settings in (
            ("PANDO_ROUTER_", RouterSettings),
            ("PANDO_OPERATOR_", OperatorSettings),
            ("PANDO_LOG_", LogSettings),
        )
        for name in settings.model_fields
    }
    manifests = render(values_of(values))
    used = {
        variable["name"]
        for _, pod in pods(manifests)
        for container in containers(pod)
        for variable in container.get("env", ())
        if variable["name"].startswith("PANDO_")
    }
    used |= set(settings_file(manifests, "operator")["worker_variables"])
    assert len(used) >= 4
    assert used <= known


def rules(role: Manifest) -> set[tuple[str, str, str, str]]:
    """Each permission as group, resource, names and verb."""
    return {
        (group, resource, ",".join(rule.get("resourceNames", ["*"])), verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def allowed(group: str, resource: str, verbs: str, names: str = "*") -> set[Any]:
    return {(group, resource, names, verb) for verb in verbs.split()}


OPERATOR = (
    allowed("pando.dev", "workerpools", "list watch")
    | allowed("pando.dev", "workerpools/status", "patch")
    | allowed("pando.dev", "workerpools/scale", "patch")
    | allowed("apps", "deployments", "list watch create patch")
    | allowed("", "services", "list watch create patch")
    | allowed("policy", "poddisruptionbudgets", "list watch create patch")
    | allowed("", "pods", "list watch patch")
    | allowed("", "pods/status", "patch")
    | allowed("", "events", "create patch")
)


NODES = allowed("", "nodes", "list watch")


def cluster_roles(manifests: list[Manifest]) -> list[Manifest]:
    """The operator's own, which aggregate to none."""
    return [
        role
        for role in of_kind(manifests, "ClusterRole")
        if not any("aggregate" in label for label in role["metadata"]["labels"])
    ]


def test_the_operator_may_do_what_it_does_and_nothing_else() -> None:
    manifests = render({})
    (nodes,) = cluster_roles(manifests)
    assert rules(nodes) == NODES
    assert rules(one(manifests, "Role", "pando-operator")) == OPERATOR
    lease = rules(one(manifests, "Role", "pando-operator-lease"))
    assert lease == allowed("coordination.k8s.io", "leases", "get update", "pando-operator")
    settings = settings_file(manifests, "operator")
    assert (settings["lease_namespace"], settings["lease_name"]) == ("llm", "pando-operator")
    assert settings["namespaces"] == ["llm"]


def test_an_operator_for_all_namespaces_has_the_same_rules_everywhere() -> None:
    manifests = render({"operator": {"watchAllNamespaces": True}})
    found = {role["metadata"]["name"]: rules(role) for role in cluster_roles(manifests)}
    assert found == {"llm-pando-operator": OPERATOR, "llm-pando-operator-nodes": NODES}
    assert "namespaces" not in settings_file(manifests, "operator")


def test_kubernetes_own_roles_include_worker_pools() -> None:
    """Whoever may edit a namespace may change its pools, but nobody writes their status."""
    manifests = render({})
    everything = {"workerpools", "workerpools/status", "workerpools/scale"}
    view = one(manifests, "ClusterRole", "pando-workerpools-view")
    assert {resource for (_, resource, *_) in rules(view)} == everything
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    edit = one(manifests, "ClusterRole", "pando-workerpools-edit")
    assert {resource for (_, resource, *_) in rules(edit)} == everything - {"workerpools/status"}
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    to = [
        {label for label in role["metadata"]["labels"] if prefix in label} for role in (view, edit)
    ]
    assert to[0] - to[1] == {f"{prefix}view"}
    assert to[1] == {f"{prefix}edit", f"{prefix}admin"}
    other = render({"crds": {"install": False}})
    assert not [role for role in of_kind(other, "ClusterRole") if role not in cluster_roles(other)]


def test_the_hook_that_applies_pools_may_do_just_that() -> None:
    role = one(render({}), "Role", "pando-pools")
    assert rules(role) == allowed("pando.dev", "workerpools", "list create patch delete") | allowed(
        "", "configmaps", "get", "pando-pools"
    )


@ALL_VALUES
def test_every_binding_is_of_a_role_and_an_account_that_are_there(values: str) -> None:
    manifests = render(values_of(values))
    names = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    bindings = [m for m in manifests if m["kind"].endswith("RoleBinding")]
    assert len(bindings) == 4
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in names
        assert {("ServiceAccount", s["name"]) for s in binding["subjects"]} <= names
    for name, pod in pods(manifests):
        account = pod["spec"].get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in names, name
