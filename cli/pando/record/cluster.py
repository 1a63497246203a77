"""The routers of a release on Kubernetes, which are asked through the API server's proxy of pods.

So whoever may list pods and use `pods/proxy` needs neither a port that is forwarded nor a shell in
the cluster.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pando.record.routers import Place, RouterError
from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration, own_namespace
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import PODS, WORKER_POOLS, Key, Object
from pando_operator.scaling import learned_start_s

COMPONENT, INSTANCE = "app.kubernetes.io/component", "app.kubernetes.io/instance"
"""Labels that the chart gives to pods."""
CONTAINER = "router"


@dataclass(frozen=True, slots=True)
class Found:
    routers: Sequence[Place]
    not_ready: Sequence[str]  # names of pods that cannot be asked


async def routers_of(namespace: str | None, release: str | None, kubeconfig: str) -> Found:
    """Raises RouterError if there is no cluster, no router, or more than one release."""
    async with _cluster(kubeconfig) as kube:
        where = namespace or own_namespace(kubeconfig)
        pods, _ = await kube.list(PODS, where, _selector(release))
        access = await kube.access()
    pods = [pod for pod in pods if _port(pod) is not None and not _ends(pod)]
    _check(pods, where, release)
    pods.sort(key=_name)
    return Found(
        [
            Place(
                name=f"pod {_name(pod)}",
                url=access.url + PODS.path(where, f"{_name(pod)}:{_port(pod)}", "proxy"),
                headers=access.headers,
                ssl=access.ssl,
            )
            for pod in pods
            if _is_ready(pod)
        ],
        [_name(pod) for pod in pods if not _is_ready(pod)],
    )


async def start_seconds(pool: str, namespace: str | None, kubeconfig: str) -> float | None:
    """From the creation of one of the pool's replicas until it is ready, as the operator has seen
    it; None if it has seen none. Raises RouterError if the pool cannot be read."""
    async with _cluster(kubeconfig) as kube:
        key = Key(namespace or own_namespace(kubeconfig), pool)
        found = await kube.get(WORKER_POOLS, key)
    return learned_start_s(tuple(found.get("status", {}).get("startSeconds") or ()))


@asynccontextmanager
async def _cluster(kubeconfig: str) -> AsyncIterator[Kube]:
    try:
        kube = Kube(await load_configuration(kubeconfig))
    except KubeError as error:
        raise RouterError(f"name the routers by URL, or a cluster: {_one_line(error)}") from None
    try:
        yield kube
    except KubeError as error:
        raise RouterError(_one_line(error)) from None
    finally:
        await kube.close()


def _selector(release: str | None) -> str:
    selector = f"{COMPONENT}=router"
    return selector if release is None else f"{selector},{INSTANCE}={release}"


def _check(pods: Sequence[Object], namespace: str, release: str | None) -> None:
    whose = f" of release {release}" if release else ""
    if not any(map(_is_ready, pods)):
        what = "is ready" if pods else "runs"
        raise RouterError(f"no router{whose} {what} in namespace {namespace}")
    releases = sorted({pod["metadata"]["labels"].get(INSTANCE, "") for pod in pods})
    if len(releases) > 1:
        raise RouterError(
            f"namespace {namespace} has routers of several releases: choose one with --release"
            f" {' or --release '.join(releases)}"
        )


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _port(pod: Object) -> int | None:
    """Of the router in it; None if it has none."""
    for container in pod["spec"].get("containers") or ():
        if container["name"] == CONTAINER and container.get("ports"):
            return int(container["ports"][0]["containerPort"])
    return None


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
