"""WorkerPools from a ConfigMap, with a real API server and the RBAC that the chart's hook has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from pando_operator.declared.apply import (
    CONFIG_MAPS,
    DeclaredError,
    apply_declared,
    delete_declared,
    parse,
)
from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.errors import Invalid
from pando_operator.kube.resources import WORKER_POOLS, Key, Object
from tests.helm.chart import OLDEST, one, render
from tests.operator.api_server import ApiServer
from tests.waiting import until_async

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = {"model": "m", "scaling": {"maxReplicas": 3}}


def install_crd(api_server: ApiServer) -> None:
    crd = one(render({}, OLDEST), "CustomResourceDefinition", "workerpools.pando.dev")
    name = crd["metadata"]["name"]
    kind = "application/apply-patch+yaml"
    api_server.call("PATCH", f"{CRDS}/{name}?fieldManager=helm", crd, content_type=kind)


@pytest.fixture
async def declarer(
    api_server: ApiServer, kube: Kube, namespace: str, tmp_path: Path
) -> AsyncIterator[Kube]:
    """A client with the permissions of the chart's Role for the hook."""
    role = one(render({}), "Role", "pando-pools")
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    body = {"metadata": {"name": "pools"}, "rules": role["rules"]}
    api_server.call("POST", f"{rbac}/roles", body)
    subject = {"kind": "User", "name": "operator", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": "pools", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "pools"}, "roleRef": reference, "subjects": [subject]}
    api_server.call("POST", f"{rbac}/rolebindings", binding)
    one_kube = Kube(await load_configuration(str(api_server.kubeconfig("operator"))))
    yield one_kube
    await one_kube.close()


def declaration(namespace: str, specs: dict[str, Any]) -> Object:
    pools = {
        f"{name}.yaml": yaml.safe_dump(
            {
                "apiVersion": WORKER_POOLS.api_version,
                "kind": WORKER_POOLS.kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }
        )
        for name, spec in specs.items()
    }
    metadata = {"name": "pando-pools", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": pools}


class Declared:
    """A release's declarations, written like Helm and applied like its hook."""

    def __init__(self, kube: Kube, declarer: Kube, namespace: str) -> None:
        self.kube, self.declarer, self.namespace = kube, declarer, namespace
        self.key = Key(namespace, "pando-pools")
        self.said: list[str] = []

    async def write(self, **specs: Any) -> None:
        body = declaration(self.namespace, specs)
        # A key that is no longer declared must be removed from the object.
        await self.kube.apply(CONFIG_MAPS, body, manager="helm")

    async def apply(self, **specs: Any) -> list[str]:
        await self.write(**specs)
        self.said.clear()
        await apply_declared(self.declarer, self.key, self.said.append, retry_s=0.05)
        return self.said

    async def pools(self) -> dict[str, Object]:
        found, _ = await self.kube.list(WORKER_POOLS, self.namespace)
        return {pool["metadata"]["name"]: pool for pool in found}


@pytest.fixture
def declared(kube: Kube, declarer: Kube, namespace: str) -> Declared:
    return Declared(kube, declarer, namespace)


async def test_it_waits_until_the_kind_is_served(
    declared: Declared, api_server: ApiServer, kube: Kube
) -> None:
    with suppress(OSError):  # it does not exist yet
        api_server.call("DELETE", f"{CRDS}/workerpools.pando.dev")
    applying = asyncio.create_task(declared.apply(default=SPEC))
    await until_async(lambda: declared.said, "it says that it waits")
    assert declared.said[0].startswith("waiting: ")
    install_crd(api_server)
    assert (await applying)[-1] == "default: created"


async def test_pools_are_created_changed_and_deleted_with_their_declarations(
    declared: Declared, api_server: ApiServer
) -> None:
    install_crd(api_server)
    assert await declared.apply(a=SPEC, b=SPEC) == ["a: created", "b: created"]
    assert await declared.apply(a=SPEC, b=SPEC) == ["a: unchanged", "b: unchanged"]
    changed = SPEC | {"engine": {"pageSize": 32}}
    assert await declared.apply(a=changed) == ["a: changed", "b: deleted"]
    pools = await declared.pools()
    assert pools["a"]["spec"]["engine"] == {"pageSize": 32}
    assert list(pools) == ["a"]
    # A field that is no longer declared is removed.
    await declared.apply(a=SPEC)
    assert "engine" not in (await declared.pools())["a"]["spec"]


async def test_pools_outlive_their_config_map_and_go_with_the_release(
    declared: Declared, api_server: ApiServer, kube: Kube
) -> None:
    """Kubernetes deletes what an object owns with it, so the ConfigMap owns nothing."""
    install_crd(api_server)
    (theirs,) = parse(declaration(declared.namespace, {"t": SPEC})["data"], declared.namespace)
    await kube.create(WORKER_POOLS, theirs)
    await declared.apply(a=SPEC)
    before = (await declared.pools())["a"]["metadata"]
    assert "ownerReferences" not in before
    await kube.delete(CONFIG_MAPS, declared.key)
    assert await declared.apply(a=SPEC, b=SPEC) == ["a: unchanged", "b: created"]
    assert (await declared.pools())["a"]["metadata"]["uid"] == before["uid"]
    await kube.delete(CONFIG_MAPS, declared.key)
    await delete_declared(declared.declarer, declared.key, declared.said.append)
    assert declared.said[-2:] == ["a: deleted", "b: deleted"]
    assert list(await declared.pools()) == ["t"]


async def test_a_count_that_kubectl_scale_wrote_outlives_an_upgrade(
    declared: Declared, api_server: ApiServer, kube: Kube
) -> None:
    install_crd(api_server)
    await declared.apply(a={"model": "m"})
    key = Key(declared.namespace, "a")
    await kube.patch(WORKER_POOLS, key, {"spec": {"replicas": 5}}, manager="kubectl")
    await declared.apply(a={"model": "m", "engine": {"pageSize": 32}})
    assert (await declared.pools())["a"]["spec"]["replicas"] == 5


async def test_a_count_that_is_no_longer_declared_stays(
    declared: Declared, api_server: ApiServer
) -> None:
    install_crd(api_server)
    await declared.apply(a={"model": "m", "replicas": 3})
    assert await declared.apply(a={"model": "m"}) == ["a: unchanged"]
    assert (await declared.pools())["a"]["spec"]["replicas"] == 3


async def test_others_pools_are_neither_changed_nor_deleted(
    declared: Declared, api_server: ApiServer, kube: Kube
) -> None:
    install_crd(api_server)
    (theirs,) = parse(declaration(declared.namespace, {"a": SPEC})["data"], declared.namespace)
    await kube.create(WORKER_POOLS, theirs)
    await declared.apply(b=SPEC)
    with pytest.raises(DeclaredError, match="WorkerPool a exists that does not belong"):
        await declared.apply(a=SPEC | {"model": "other"}, c=SPEC)
    pools = await declared.pools()
    assert pools["a"]["spec"]["model"] == "m"
    assert set(pools) == {"a", "b"}


async def test_a_pool_that_is_still_being_deleted_is_waited_for(
    declared: Declared, api_server: ApiServer, kube: Kube
) -> None:
    install_crd(api_server)
    await declared.apply(a=SPEC)
    key, held = Key(declared.namespace, "a"), {"metadata": {"finalizers": ["test/held"]}}
    before = await kube.patch(WORKER_POOLS, key, held, manager="somebody")
    await kube.delete(WORKER_POOLS, key)
    applying = asyncio.create_task(declared.apply(a=SPEC))
    await until_async(lambda: "being deleted" in "".join(declared.said), "it says what it awaits")
    await kube.patch(WORKER_POOLS, key, {"metadata": {"finalizers": None}}, manager="somebody")
    assert (await applying)[-1] == "a: created"
    assert (await declared.pools())["a"]["metadata"]["uid"] != before["metadata"]["uid"]


async def test_a_bad_pool_is_refused_with_its_field(
    declared: Declared, api_server: ApiServer
) -> None:
    install_crd(api_server)
    with pytest.raises(Invalid, match=r"spec\.tensorParallelSize"):
        await declared.apply(a=SPEC | {"tensorParallelSize": 0})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "not YAML"),
        ("kind: Pod", "not a WorkerPool"),
        ("{kind: WorkerPool, metadata: {name: a, namespace: other}}", "not for the namespace"),
    ],
)
def test_what_is_no_pool_of_the_namespace_is_refused(text: str, why: str) -> None:
    with pytest.raises(DeclaredError, match=f"a.yaml is {why}"):
        parse({"a.yaml": text}, "here")
