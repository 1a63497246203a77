"""A release's life with real Helm and a real API server; the test acts as the Job controller."""

import asyncio
import base64
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm_python import Chart, Config, HelmReleaseError

from pando_operator.declared.__main__ import DOES
from pando_operator.declared.apply import DeclaredError
from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import Key
from tests.helm.chart import CHART
from tests.operator.api_server import ApiServer
from tests.waiting import until

MERGE = "application/merge-patch+json"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workerpools.pando.dev"


class Jobs(threading.Thread):
    """Runs the hook's Jobs of a namespace as their pods would, until `stop`."""

    def __init__(self, api_server: ApiServer, namespace: str) -> None:
        super().__init__(daemon=True)
        self._api_server = api_server
        self._path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._over = threading.Event()
        self.said: list[str] = []

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.05):
            for job in self._api_server.call("GET", self._path)["items"]:
                if not job["status"].get("conditions"):
                    self._run(job)

    def _run(self, job: dict[str, Any]) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        try:
            what, *where = container["args"]
            asyncio.run(self._do(what, Key(*where)))
            kind, counts = "Complete", {"succeeded": 1}
        except (KubeError, DeclaredError) as error:
            self.said.append(str(error))
            kind, counts = "Failed", {"failed": 1}
        condition = {"type": kind, "status": "True", "reason": "Test"}
        status = {"status": {"conditions": [condition], **counts}}
        name = job["metadata"]["name"]
        self._api_server.call("PATCH", f"{self._path}/{name}/status", status, content_type=MERGE)

    async def _do(self, what: str, config_map: Key) -> None:
        kube = Kube(await load_configuration(str(self._api_server.kubeconfig())))
        try:
            await DOES[what](kube, config_map, self.said.append)
        finally:
            await kube.close()


class Release:
    def __init__(self, api_server: ApiServer, namespace: str, jobs: Jobs) -> None:
        self.api_server, self.namespace, self.jobs = api_server, namespace, jobs
        self.helm = Config(kubeconfig_path=api_server.kubeconfig(), namespace=namespace)

    def install(self, values: dict[str, Any]) -> None:
        with Chart.load(CHART) as chart:
            self.helm.install(chart, "pando", values, namespace=self.namespace, timeout=120)

    def upgrade(self, values: dict[str, Any]) -> None:
        with Chart.load(CHART) as chart:
            self.helm.upgrade(chart, "pando", values, namespace=self.namespace, timeout=120)

    def get(self, path: str) -> Any:
        api, _, rest = path.partition("/namespaced/")
        return self.api_server.call("GET", f"{api}/namespaces/{self.namespace}/{rest}")

    def pool(self, name: str = "default") -> Any:
        return self.get(f"/apis/pando.dev/v1alpha1/namespaced/workerpools/{name}")

    def password(self) -> str:
        data = self.get("/api/v1/namespaced/secrets/pando-redis")["data"]
        return base64.b64decode(data["password"]).decode()

    def names(self, path: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.get(path)["items"]]


@pytest.fixture
def release(api_server: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Release]:
    jobs = Jobs(api_server, namespace)
    jobs.start()
    one = Release(api_server, namespace, jobs)
    yield one
    one.helm.uninstall("pando", ignore_not_found=True)
    one.helm.close()
    jobs.stop()
    api_server.call("DELETE", CRD)  # it belongs to the cluster, which other tests share

    def gone() -> bool:
        try:
            api_server.call("GET", CRD)
        except OSError as error:
            return "404" in str(error)
        return False

    until(gone, "the CRD and all its objects are gone", 60)


def test_upgrade_rollback_and_uninstall_keep_what_they_should(release: Release) -> None:
    release.install({})
    password = release.password()
    assert release.pool()["spec"]["engine"]["memoryGib"] == 1
    assert release.jobs.said[-1] == "default: created"
    uid = release.pool()["metadata"]["uid"]

    lease = f"/apis/coordination.k8s.io/v1/namespaces/{release.namespace}/leases/pando-operator"
    release.api_server.call("DELETE", lease)
    release.upgrade({"pools": {"default": {"engine": {"pageSize": 32}}, "second": {"model": "m"}}})
    assert release.api_server.call("GET", lease)["metadata"]["name"] == "pando-operator"
    assert release.pool()["spec"]["engine"]["pageSize"] == 32
    assert release.pool("second")["spec"]["model"] == "m"
    assert release.password() == password

    release.helm.rollback("pando", timeout=120)
    assert "pageSize" not in release.pool()["spec"]["engine"]
    assert release.pool()["metadata"]["uid"] == uid
    assert release.names("/apis/pando.dev/v1alpha1/namespaced/workerpools") == ["default"]
    assert release.password() == password

    theirs = release.pool() | {"metadata": {"name": "theirs"}}
    pools = f"/apis/pando.dev/v1alpha1/namespaces/{release.namespace}/workerpools"
    release.api_server.call("POST", pools, theirs)
    release.helm.uninstall("pando")
    for kind in (
        "/api/v1/namespaced/secrets",
        "/api/v1/namespaced/services",
        "/api/v1/namespaced/configmaps",
        "/api/v1/namespaced/serviceaccounts",
        "/apis/apps/v1/namespaced/deployments",
        "/apis/batch/v1/namespaced/jobs",
        "/apis/rbac.authorization.k8s.io/v1/namespaced/roles",
        "/apis/policy/v1beta1/namespaced/poddisruptionbudgets",
    ):
        assert not [name for name in release.names(kind) if name.startswith("pando")], kind
    # The CRD and others' pools stay.
    assert release.names("/apis/pando.dev/v1alpha1/namespaced/workerpools") == ["theirs"]


def test_a_second_install_finds_the_crd_of_the_first(release: Release) -> None:
    release.install({})
    release.helm.uninstall("pando")
    release.install({"pools": {"default": {"servedModelName": "again"}}})
    assert release.pool()["spec"]["servedModelName"] == "again"


def test_another_releases_crd_is_left_alone_or_handed_over(release: Release) -> None:
    release.install({"pools": {"default": None}})
    release.helm.uninstall("pando")
    with Chart.load(CHART) as chart:
        with pytest.raises(HelmReleaseError) as refused:
            release.helm.install(chart, "other", {}, namespace=release.namespace, timeout=120)
        assert "crds.install=false" in str(refused.value)
        assert 'release "pando" in the namespace' in str(refused.value)
        names = re.findall(r"(meta\.helm\.sh/[-\w]+)=([-\w]+)", str(refused.value))
        body = {"metadata": {"annotations": dict(names)}}
        release.api_server.call("PATCH", CRD, body, content_type=MERGE)
        release.helm.install(chart, "other", {}, namespace=release.namespace, timeout=120)
    release.helm.uninstall("other")


def test_an_autoscaler_takes_over_the_number_of_routers_that_there_is(release: Release) -> None:
    path = "/apis/apps/v1/namespaced/deployments/pando-router"
    scaled = path.replace("/namespaced/", f"/namespaces/{release.namespace}/") + "/scale"

    def routers() -> int:
        number: int = release.get(path)["spec"]["replicas"]
        return number

    values: dict[str, Any] = {"pools": {"default": None}, "router": {"replicas": 5}}
    release.install(values)
    values["router"]["autoscaling"] = {"enabled": True}
    release.upgrade(values)
    assert routers() == 5
    release.api_server.call("PATCH", scaled, {"spec": {"replicas": 8}}, content_type=MERGE)
    release.upgrade(values | {"commonLabels": {"team": "inference"}})
    assert routers() == 8


def test_a_second_operator_for_the_same_pools_is_refused(release: Release) -> None:
    values: dict[str, Any] = {"pools": {"default": None}, "crds": {"install": False}}
    release.install({"pools": {"default": None}})
    with Chart.load(CHART) as chart:
        with pytest.raises(HelmReleaseError, match="operator for the same pools"):
            release.helm.install(chart, "other", values, namespace=release.namespace, timeout=120)
        routers_alone = values | {"operator": {"replicas": 0}}
        release.helm.install(
            chart, "other", routers_alone, namespace=release.namespace, timeout=120
        )
    release.helm.uninstall("other")


def test_a_pool_of_somebody_elses_fails_the_install_and_says_why(release: Release) -> None:
    release.install({"pools": {"default": None}})
    path = f"/apis/pando.dev/v1alpha1/namespaces/{release.namespace}/workerpools"
    body = {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "mine"},
        "spec": {"model": "m"},
    }
    release.api_server.call("POST", path, body)
    with pytest.raises(HelmReleaseError, match="pando-pools"):
        release.upgrade({"pools": {"mine": {"model": "other"}}})
    assert "mine exists that does not belong" in release.jobs.said[-1]
    assert release.pool("mine")["spec"]["model"] == "m"
