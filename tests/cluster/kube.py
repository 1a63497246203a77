"""A Kubernetes cluster for the tests: the API server's JSON, and waiting for conditions."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kubernetes import config
from kubernetes.client import ApiClient

Object = dict[str, Any]
Value = TypeVar("Value")

POOLS = "/apis/pando.dev/v1alpha1/namespaces/{namespace}/workerpools"
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server's refusal; `body` is its answer."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: {status} {body[:2000]}")
        self.status, self.body = status, body


@dataclass(slots=True)
class Cluster:
    """One namespace of the cluster that KUBECONFIG names."""

    namespace: str
    client: ApiClient = field(default_factory=lambda: _connected())

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float = 60,
    ) -> bytes:
        """An answer's body.

        Raises:
            ApiError
        """
        serialized = self.client.param_serialize(
            method,
            path.replace("{namespace}", self.namespace),
            query_params=list((query or {}).items()),
            header_params={"Content-Type": content_type, "Accept": "application/json, */*"},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self.client.call_api(*serialized, _request_timeout=timeout_s)
        data: bytes = answer.read()
        if answer.status >= 400:
            raise ApiError(method, path, answer.status, data.decode(errors="replace"))
        return data

    def get(self, path: str, **query: str) -> Object:
        return _object(self.call("GET", path, query=query))

    def find(self, path: str) -> Object | None:
        """The object, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Object]:
        return list(self.get(path, **query)["items"])

    def create(self, path: str, body: Object) -> Object:
        return _object(self.call("POST", path, body))

    def patch(self, path: str, body: Object) -> Object:
        return _object(self.call("PATCH", path, body, content_type=MERGE))

    def delete(self, path: str) -> None:
        try:
            self.call("DELETE", path, {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status != 404:
                raise

    def impersonate(self, user: str) -> "Cluster":
        """The same namespace as another user sees it."""
        other = Cluster(self.namespace)
        other.client.set_default_header("Impersonate-User", user)
        return other

    # Objects that the tests use often.

    def pods(self, selector: str) -> list[Object]:
        return self.items("/api/v1/namespaces/{namespace}/pods", labelSelector=selector)

    def staying(self, selector: str) -> list[Object]:
        """Pods that are not being deleted. A node may be slow to clean up a deleted one; Kubernetes
        1.20 takes more than a minute after its processes ended (kubernetes#97288)."""
        return [pod for pod in self.pods(selector) if "deletionTimestamp" not in pod["metadata"]]

    def component(self, name: str) -> list[Object]:
        """The chart's pods of one component that are not being deleted."""
        return self.staying(f"app.kubernetes.io/component={name}")

    def workers(self, pool: str) -> list[Object]:
        """A pool's pods that are not being deleted."""
        return self.staying(f"pando.dev/pool={pool}")

    def delete_pod(self, name: str) -> None:
        self.delete(f"/api/v1/namespaces/{{namespace}}/pods/{name}")

    def pool(self, name: str) -> Object:
        return self.get(f"{POOLS}/{name}")

    def pool_status(self, name: str) -> Object:
        status: Object = self.pool(name).get("status", {})
        return status

    def patch_pool(self, name: str, spec: Object) -> Object:
        return self.patch(f"{POOLS}/{name}", {"spec": spec})

    def events(self, kind: str, name: str) -> list[Object]:
        """The events of one object."""
        return self.items(
            "/api/v1/namespaces/{namespace}/events",
            fieldSelector=f"involvedObject.kind={kind},involvedObject.name={name}",
        )

    def logs(self, pod: str, **query: str) -> str:
        path = f"/api/v1/namespaces/{{namespace}}/pods/{pod}/log"
        return self.call("GET", path, query=query).decode(errors="replace")

    def through_pod(
        self,
        pod: str,
        port: int,
        method: str,
        path: str,
        body: object = None,
        timeout_s: float = 60,
    ) -> bytes:
        """A call to a pod's own HTTP server through the API server's proxy."""
        proxy = f"/api/v1/namespaces/{{namespace}}/pods/{pod}:{port}/proxy{path}"
        return self.call(method, proxy, body, timeout_s=timeout_s)


def is_ready(pod: Object) -> bool:
    """Whether it accepts requests and is not being deleted."""
    conditions = {entry["type"]: entry["status"] for entry in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def stages(pods: list[Object]) -> list[Object]:
    """The pods' progress, to see whether it changes."""
    return [
        {
            "name": name_of(pod),
            "annotations": pod["metadata"].get("annotations"),
            "phase": pod["status"].get("phase"),
            "true": sorted(
                entry["type"]
                for entry in pod["status"].get("conditions", ())
                if entry["status"] == "True"
            ),
            "restarts": [
                entry["restartCount"] for entry in pod["status"].get("containerStatuses", ())
            ],
        }
        for pod in pods
    ]


def name_of(entry: Object) -> str:
    return str(entry["metadata"]["name"])


def wait_until(
    what: str,
    condition: Callable[[], Value],
    timeout_s: float,
    every_s: float = 0.25,
    moving: Callable[[], object] | None = None,
) -> Value:
    """Waits for a true value and returns it; refusals of the API server count as not yet.

    With `moving`, the timeout restarts at each of its changes: several steps may be slow on a busy
    machine as long as they progress.
    """
    ends = time.monotonic() + timeout_s
    last: object = None
    stage: object = None
    while True:
        try:
            if value := condition():
                return value
            last = value
            if moving and (seen := moving()) != stage:
                stage, ends = seen, time.monotonic() + timeout_s
        except ApiError as error:
            last = error
        if time.monotonic() > ends:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}; last: {last}, at: {stage}")
        time.sleep(every_s)


def passes(seconds: float) -> None:
    """Let time pass that is itself what a test is about, such as a pause between two waves."""
    ends = time.monotonic() + seconds
    wait_until("it has passed", lambda: time.monotonic() >= ends, seconds + 5)


def _connected() -> ApiClient:
    config.load_kube_config()
    return ApiClient()


def _object(data: bytes) -> Object:
    decoded: Object = json.loads(data)
    return decoded
