"""An uninstalled release leaves only the definition of WorkerPools, which others may use."""

from tests.cluster.kube import Cluster, Object, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import Release

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workerpools.pando.dev"
PASSING = {"events"}  # they record the past and expire by themselves


def test_uninstall_leaves_nothing_but_the_crd(
    cluster: Cluster, release: Release, load: LoadPod
) -> None:
    load.stop()
    release.uninstall()
    left: list[str] = []

    def is_empty() -> bool:
        left[:] = _left(cluster)
        return not left

    try:
        wait_until("nothing is left", is_empty, 120, every_s=1)
    except AssertionError as error:
        raise AssertionError(f"left: {left}") from error
    assert cluster.get(CRD)["spec"]["names"]["kind"] == "WorkerPool"


def _left(cluster: Cluster) -> list[str]:
    """Everything in the namespace that Kubernetes did not create itself."""
    groups = cluster.get("/apis")["groups"]
    preferred = [group["preferredVersion"]["groupVersion"] for group in groups]
    versions = ["/api/v1", *(f"/apis/{version}" for version in preferred)]
    left = []
    for version in versions:
        for resource in _listable(cluster, version):
            items = cluster.items(f"{version}/namespaces/{{namespace}}/{resource}")
            left += [f"{resource}/{item['metadata']['name']}" for item in items if _ours(item)]
    return left


def _listable(cluster: Cluster, version: str) -> list[str]:
    return [
        resource["name"]
        for resource in cluster.get(version)["resources"]
        if resource["namespaced"]
        and "list" in resource["verbs"]
        and resource["name"] not in PASSING
    ]


def _ours(item: Object) -> bool:
    name = item["metadata"]["name"]
    return not (
        name in ("default", "kube-root-ca.crt") or item.get("type", "").endswith("account-token")
    )
