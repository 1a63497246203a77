"""What goes wrong around a pool on real clusters costs no stream, no other pool and no size."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cluster.conftest import POOL, Tally
from tests.cluster.kube import (
    POOLS,
    ApiError,
    Cluster,
    Object,
    is_ready,
    name_of,
    passes,
    stages,
    wait_until,
)
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL, NAME, SERVED, Release, values

SCALING = CHAT_POOL["scaling"]
STEP_S = 120
DRAINING = "pando.dev/draining-since"
CORE = "/api/v1/namespaces/{namespace}"
ROUTERS = f"/apis/apps/v1/namespaces/{{namespace}}/deployments/{NAME}-router"

SLOW, START_S = "slow-start", 90
SLOW_START = {
    # Python runs it at the start of each process; only the first one of a pod waits.
    "sitecustomize.py": (
        "import os, pathlib, time\n"
        "mark = pathlib.Path('/tmp/started')\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        f"    time.sleep({START_S})\n"
    )
}

LONG_POOL = CHAT_POOL | {
    # On less than a core each stream takes minutes, and less than the 300 s.
    "template": {"resources": CHAT_POOL["template"]["resources"] | {"limits": {"cpu": "800m"}}},
    "engine": CHAT_POOL["engine"] | {"memoryGib": 1.5, "maxTotalTokens": 163_840},
    "scaling": SCALING | {"mode": "Manual", "drain": {"timeoutSeconds": 300}},
}
LONG = {"clients": 40, "words": 20, "max_tokens": 2_300}
"""Together they keep one replica busy for longer than LONGEST_S."""
LONGEST_S = 120
"""Routers that end give their streams 300 s, as workers do; it was 65 s."""


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[None]:
    """Two replicas, without scaling."""
    cluster.patch_pool(POOL, {"replicas": 2, "scaling": SCALING | {"mode": "Manual"}})
    _settles(cluster, 2)
    yield


@pytest.mark.long
def test_a_model_that_starts_in_90_s_is_served_from_zero_within_three_requests(
    cluster: Cluster, load: LoadPod
) -> None:
    """The pool sleeps after 30 s. Each client gives up at once and the next one comes a minute
    later, so nothing waits while the replica starts."""
    _sleeps(cluster, 5)
    cluster.create(f"{CORE}/configmaps", {"metadata": {"name": SLOW}, "data": SLOW_START})
    env = [{"name": "PYTHONPATH", "value": "/slow"}]
    template = CHAT_POOL["template"] | {
        "env": env,
        "volumes": [{"name": SLOW, "configMap": {"name": SLOW}}],
        "volumeMounts": [{"name": SLOW, "mountPath": "/slow"}],
    }
    cluster.patch_pool(POOL, {"template": template})
    _sleeps(cluster, 30)
    body = {"model": SERVED, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
    began = time.monotonic()
    for _ in range(2):
        assert load.ask("/v1/chat/completions", body, timeout_s=1).status == 0  # no answer yet
        passes(60)
    assert load.ask("/v1/chat/completions", body, timeout_s=60).status == 200
    assert time.monotonic() - began > START_S, "it was served by a replica that did not start"
    (pod,) = cluster.workers(POOL)
    assert _ready_after_s(pod) >= START_S
    bare: Object = dict.fromkeys(("env", "volumes", "volumeMounts"))
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Auto", "idleSeconds": None}})
    cluster.patch_pool(POOL, {"template": bare})
    cluster.delete(f"{CORE}/configmaps/{SLOW}")
    _rolls(cluster, cluster.pool(POOL))


def _sleeps(cluster: Cluster, idle_s: int) -> None:
    asleep = SCALING | {"mode": "Auto", "minReplicas": 0, "idleSeconds": idle_s}
    cluster.patch_pool(POOL, {"scaling": asleep})
    _settles(cluster, 0)


def _ready_after_s(pod: Object) -> float:
    """Seconds from its creation until its container was ready."""
    conditions = {one["type"]: one for one in pod["status"]["conditions"]}
    ready = datetime.fromisoformat(conditions["ContainersReady"]["lastTransitionTime"])
    created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return (ready - created).total_seconds()


@pytest.mark.long
def test_long_streams_survive_a_restart_of_the_routers(
    cluster: Cluster, release: Release, load: LoadPod, tally: Tally
) -> None:
    release.upgrade(values({POOL: LONG_POOL | {"replicas": 1}}))
    _rolls(cluster, cluster.pool(POOL))
    before = set(map(name_of, cluster.component("router")))
    first = load.seen
    load.begin(**LONG)
    stamp = {"kubectl.kubernetes.io/restartedAt": datetime.now(UTC).isoformat()}
    cluster.patch(ROUTERS, {"spec": {"template": {"metadata": {"annotations": stamp}}}})
    load.set(0)

    def replaced() -> bool:
        now = cluster.component("router")
        return not before & set(map(name_of, now)) and len([p for p in now if is_ready(p)]) == 2

    wait_until("other routers", replaced, STEP_S)
    wait_until("all streams have ended", lambda: not load.now()["running"], 320)
    longest_s = max(stream["seconds"] for stream in load.streams(first)["streams"])
    counts = load.count()
    tally.add("7 routers restarted under long streams", counts)
    assert counts.finished == counts.streams >= LONG["clients"], counts
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts
    assert longest_s > LONGEST_S, f"streams of {longest_s:.0f} s show nothing: raise LONG"
    release.upgrade(values({POOL: CHAT_POOL}))
    _settles(cluster, 1)


def test_a_new_template_is_ready_only_when_all_new_replicas_serve(
    cluster: Cluster, pair: None
) -> None:
    looks = _rolls(cluster, cluster.patch_pool(POOL, {"engine": {"maxRunningRequests": 48}}))
    environments = [
        {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        for pod in cluster.workers(POOL)
    ]
    assert [each["PANDO_WORKER_MAX_RUNNING_REQUESTS"] for each in environments] == ["48", "48"]
    assert looks[-1]["updatedReplicas"] == 2
    assert any(look.get("updatedReplicas", 0) < 2 for look in looks), "the rollout was seen"
    cluster.patch_pool(POOL, {"engine": {"maxRunningRequests": None}})
    _settles(cluster, 2)


def test_a_pod_that_was_taken_aside_is_left_alone(cluster: Cluster, pair: None) -> None:
    aside = name_of(cluster.workers(POOL)[0])
    path = f"{CORE}/pods/{aside}"
    cluster.patch(path, {"metadata": {"labels": {"pod-template-hash": "aside"}}})
    _until_ready(cluster, 3)
    cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": 1}})
    wait_until("one of the other two leaves", lambda: len(cluster.workers(POOL)) == 2, STEP_S)
    pod = cluster.get(path)
    assert DRAINING not in (pod["metadata"].get("annotations") or {})
    assert is_ready(pod)
    cluster.delete_pod(aside)
    _settles(cluster, 1)


def test_of_two_evictions_at_once_the_second_is_refused(cluster: Cluster, pair: None) -> None:
    budget = f"/apis/policy/v1beta1/namespaces/{{namespace}}/poddisruptionbudgets/{POOL}"
    budget = budget if cluster.find(budget) else budget.replace("v1beta1", "v1")
    wait_until(
        "the budget counts both", lambda: cluster.get(budget)["status"]["disruptionsAllowed"], 60
    )
    first, second = map(name_of, cluster.workers(POOL))
    _evict(cluster, first)
    with pytest.raises(ApiError) as refused:
        _evict(cluster, second)
    assert refused.value.status == 429
    _settles(cluster, 2)
    assert second in map(name_of, cluster.workers(POOL))


def test_no_pool_dies_with_the_config_map_that_declares_it(
    cluster: Cluster, release: Release, load: LoadPod, tally: Tally, pair: None
) -> None:
    before = cluster.pool(POOL)["metadata"]["uid"]
    workers = sorted(map(name_of, cluster.workers(POOL)))
    load.begin(4, max_tokens=150)
    cluster.delete(f"{CORE}/configmaps/{NAME}-pools")
    # The garbage collector deletes what an object owned within seconds: show that it has run.
    owner = cluster.create(f"{CORE}/configmaps", {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    owned = {"name": "owned", "ownerReferences": [reference | {"uid": owner["metadata"]["uid"]}]}
    cluster.create(f"{CORE}/configmaps", {"metadata": owned})
    cluster.delete(f"{CORE}/configmaps/owner")
    wait_until("owned ones go", lambda: cluster.find(f"{CORE}/configmaps/owned") is None, 60)
    load.more(4)
    load.set(0)
    counts = load.count()
    tally.add("8 the pools' ConfigMap deleted", counts)
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts
    assert cluster.pool(POOL)["metadata"]["uid"] == before
    assert sorted(map(name_of, cluster.workers(POOL))) == workers
    release.upgrade(values({POOL: CHAT_POOL}))
    assert cluster.pool(POOL)["metadata"]["uid"] == before


def test_a_foreign_service_is_left_untouched_under_a_full_quota(
    cluster: Cluster, release: Release
) -> None:
    service = f"{CORE}/services/taken"
    quota = f"{CORE}/resourcequotas/full"
    spec = {"selector": {"app": "theirs"}, "ports": [{"port": 80}]}
    cluster.create(f"{CORE}/services", {"metadata": {"name": "taken"}, "spec": spec})
    try:
        before = cluster.get(service)
        services = len(cluster.items(f"{CORE}/services"))
        hard = {"hard": {"services": str(services)}}
        cluster.create(f"{CORE}/resourcequotas", {"metadata": {"name": "full"}, "spec": hard})
        wait_until(
            "the quota is full",
            lambda: cluster.get(quota).get("status", {}).get("used") == hard["hard"],
            60,
        )
        pool = {"metadata": {"name": "taken"}, "spec": CHAT_POOL}
        kind = {"apiVersion": "pando.dev/v1alpha1", "kind": "WorkerPool"}
        cluster.create(POOLS, kind | pool)
        wait_until("NameTaken", lambda: _reason(cluster, "taken", "Degraded") == "NameTaken", 30)
        after = cluster.get(service)
        assert (after["spec"], after["metadata"]) == (before["spec"], before["metadata"])
        assert cluster.workers("taken") == []
    finally:
        for path in (f"{POOLS}/taken", quota, service):
            cluster.delete(path)


def _evict(cluster: Cluster, pod: str) -> None:
    """As `kubectl drain` does."""
    metadata = {"name": pod, "namespace": cluster.namespace}
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    try:
        cluster.create(f"{CORE}/pods/{pod}/eviction", body)
    except ApiError as error:
        if "policy/v1" not in json.dumps(error.body) or error.status == 429:
            raise
        cluster.create(f"{CORE}/pods/{pod}/eviction", body | {"apiVersion": "policy/v1beta1"})


def _reason(cluster: Cluster, pool: str, kind: str) -> str:
    conditions = cluster.pool_status(pool).get("conditions", ())
    return next((str(one["reason"]) for one in conditions if one["type"] == kind), "")


def _rolls(cluster: Cluster, pool: Object) -> list[Object]:
    """Wait as `kubectl wait --for=condition=Ready` does, for this generation of the pool. Returns
    the statuses on the way."""
    looks: list[Object] = []

    def is_ready_by_status() -> bool:
        status = cluster.pool_status(POOL)
        looks.append(status)
        ready = next(one for one in status["conditions"] if one["type"] == "Ready")
        is_current = ready["observedGeneration"] == pool["metadata"]["generation"]
        return bool(is_current and ready["status"] == "True")

    wait_until("Ready", is_ready_by_status, STEP_S, moving=lambda: stages(cluster.workers(POOL)))
    return looks


def _until_ready(cluster: Cluster, number: int) -> None:
    _until(cluster, lambda pods: sum(map(is_ready, pods)) == number, f"{number} are ready")


def _settles(cluster: Cluster, number: int) -> None:
    """Wait until `number` replicas accept requests and there are no others."""
    _until(
        cluster,
        lambda pods: len(pods) == number and all(map(is_ready, pods)),
        f"{number} replicas",
    )


def _until(cluster: Cluster, holds: Callable[[list[Object]], bool], what: str) -> None:
    wait_until(
        what,
        lambda: holds(cluster.workers(POOL)),
        STEP_S,
        moving=lambda: stages(cluster.workers(POOL)),
    )
