"""Calls to a real API server: results, owners of fields, and errors."""

from pathlib import Path

import pytest
import trustme

from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.errors import Conflict, Forbidden, Gone, Invalid, NotFound, Unavailable
from pando_operator.kube.resources import DEPLOYMENTS, LEASES, PODS, SERVICES, Key, Object
from tests.operator.api_server import ApiServer
from tests.operator.front import Fault, Front


def deployment(namespace: str, name: str = "d", image: str = "one") -> Object:
    labels = {"app": name}
    pod = {"containers": [{"name": "worker", "image": image}]}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def pod(namespace: str, name: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"of": "test"}},
        "spec": {
            "containers": [{"name": "worker", "image": "one"}],
            "readinessGates": [{"conditionType": "pando.dev/serving"}],
        },
    }


async def test_replicas_that_another_manager_applied_stay_when_the_rest_is_applied(
    kube: Kube, namespace: str
) -> None:
    key = Key(namespace, "d")
    await kube.apply(DEPLOYMENTS, deployment(namespace), manager="pando-operator")
    size = {"metadata": {"name": "d", "namespace": namespace}, "spec": {"replicas": 3}}
    await kube.apply(DEPLOYMENTS, size, manager="pando-scaler")

    await kube.apply(DEPLOYMENTS, deployment(namespace, image="two"), manager="pando-operator")

    spec = (await kube.get(DEPLOYMENTS, key))["spec"]
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["containers"][0]["image"] == "two"


async def test_a_list_longer_than_a_page_is_whole(
    kube: Kube, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pando_operator.kube.client.PAGE", 2)
    for number in range(5):
        await kube.create(PODS, pod(namespace, f"p{number}"))

    items, version = await kube.list(PODS, namespace, "of=test")

    assert [item["metadata"]["name"] for item in items] == [f"p{number}" for number in range(5)]
    assert items[0]["kind"] == "Pod"
    assert version.isdecimal()


async def test_a_condition_of_a_pod_is_set_beside_the_kubelet_s(kube: Kube, namespace: str) -> None:
    await kube.create(PODS, pod(namespace, "p"))
    for kind, status in (("Ready", "False"), ("pando.dev/serving", "True")):
        await kube.patch(
            PODS,
            Key(namespace, "p"),
            {"status": {"conditions": [{"type": kind, "status": status}]}},
            manager="pando-operator",
            kind="strategic-merge",
            subresource="status",
        )

    conditions = (await kube.get(PODS, Key(namespace, "p")))["status"]["conditions"]

    seen = {condition["type"]: condition["status"] for condition in conditions}
    assert seen == {"Ready": "False", "pando.dev/serving": "True"}


async def test_what_is_not_there_is_not_found(kube: Kube, namespace: str) -> None:
    with pytest.raises(NotFound, match='"none" not found'):
        await kube.get(DEPLOYMENTS, Key(namespace, "none"))


async def test_a_write_over_a_newer_version_is_a_conflict(kube: Kube, namespace: str) -> None:
    lease = {"metadata": {"name": "l", "namespace": namespace}, "spec": {"holderIdentity": "a"}}
    old = await kube.create(LEASES, lease)
    await kube.replace(LEASES, old | {"spec": {"holderIdentity": "c"}})
    with pytest.raises(Conflict, match="modified"):
        await kube.replace(LEASES, old | {"spec": {"holderIdentity": "b"}})
    with pytest.raises(Conflict, match="already exists"):
        await kube.create(LEASES, lease)


async def test_a_bad_object_is_invalid_and_the_field_is_named(kube: Kube, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"spec\.ports"):
        await kube.apply(
            SERVICES,
            {"metadata": {"name": "s", "namespace": namespace}, "spec": {"selector": {"a": "b"}}},
            manager="pando-operator",
        )


async def test_a_missing_permission_is_named(api_server: ApiServer, namespace: str) -> None:
    nobody = Kube(await load_configuration(str(api_server.kubeconfig("nobody"))))
    try:
        with pytest.raises(Forbidden, match='"nobody" cannot list resource "pods"'):
            await nobody.list(PODS, namespace)
    finally:
        await nobody.close()


async def test_a_version_that_etcd_has_forgotten_is_gone(
    kube: Kube, api_server: ApiServer, namespace: str
) -> None:
    lease = {"metadata": {"name": "l", "namespace": namespace}, "spec": {"holderIdentity": "a"}}
    old = await kube.create(LEASES, lease)
    await kube.replace(LEASES, old | {"spec": {"holderIdentity": "b"}})
    api_server.compact()
    with pytest.raises(Gone):
        async for event in kube.watch(LEASES, namespace, "", old["metadata"]["resourceVersion"]):
            raise AssertionError(f"the watch went on with {event}")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(lambda _: True, status=503, body="<html>gateway"), id="gateway"),
        pytest.param(Fault(lambda _: True, status=429), id="overload"),
        pytest.param(Fault(lambda _: True, hang_up=True), id="hang up"),
        pytest.param(Fault(lambda _: True, delay_s=30), id="silence"),
        pytest.param(Fault(lambda _: True, status=200, body="<html>"), id="no JSON"),
    ],
)
async def test_an_api_server_that_cannot_answer_is_unavailable(
    api_server: ApiServer, front: Front, namespace: str, fault: Fault
) -> None:
    path = str(api_server.kubeconfig(server=front.url))
    kube = Kube(await load_configuration(path), timeout_s=0.3)
    front.faults.append(fault)
    try:
        with pytest.raises(Unavailable, match="get pods/p"):
            await kube.get(PODS, Key(namespace, "p"))
    finally:
        await kube.close()


async def test_an_api_server_that_nobody_runs_is_unavailable(api_server: ApiServer) -> None:
    path = str(api_server.kubeconfig(server="http://127.0.0.1:9"))
    kube = Kube(await load_configuration(path))
    try:
        with pytest.raises(Unavailable, match="list pods"):
            await kube.list(PODS)
    finally:
        await kube.close()


async def test_a_new_authority_of_the_cluster_is_read_when_its_certificates_appear(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    right = (api_server.folder / "ca.crt").read_bytes()
    configuration = await load_configuration(str(api_server.kubeconfig()))
    mounted = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(mounted)
    configuration.ssl_ca_cert = str(mounted)
    kube = Kube(configuration)
    try:
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await kube.list(PODS, namespace)
        mounted.write_bytes(right)
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await kube.list(PODS, namespace)
        assert (await kube.list(PODS, namespace))[0] == []
    finally:
        await kube.close()
