"""Pods are lost under load: requests succeed, possibly on a second try, and the fleet recovers."""

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import POOL, Tally
from tests.cluster.kube import POOLS, Cluster, Object, is_ready, name_of, stages, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL, NAME

SCALING = CHAT_POOL["scaling"]
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{{namespace}}/leases/{NAME}-operator"
DRAINING = "pando.dev/draining-since"
CLIENTS = 4
LONG = 1000
"""Tokens per stream: enough for a drain to wait for it; one replica has room for all four."""


@pytest.fixture
def loaded(cluster: Cluster, load: LoadPod) -> Iterator[LoadPod]:
    """Two replicas under load, without scaling."""
    cluster.patch_pool(POOL, {"replicas": 2, "scaling": SCALING | {"mode": "Manual"}})
    _heals(cluster)
    load.begin(CLIENTS, max_tokens=150)
    yield load
    load.set(0)


def test_a_worker_is_deleted(cluster: Cluster, loaded: LoadPod, tally: Tally) -> None:
    victim = name_of(cluster.workers(POOL)[0])
    cluster.delete_pod(victim)
    wait_until("it goes", lambda: victim not in map(name_of, cluster.workers(POOL)), 30)
    _heals(cluster)
    _end(loaded, tally, "4 a worker pod deleted")


def test_a_worker_is_killed(cluster: Cluster, loaded: LoadPod, tally: Tally) -> None:
    """Its streams continue at the other one, as they are greedy."""
    victim = name_of(cluster.workers(POOL)[0])
    path = f"/api/v1/namespaces/{{namespace}}/pods/{victim}"
    cluster.call("DELETE", path, {"gracePeriodSeconds": 0})
    _heals(cluster)
    _end(loaded, tally, "4 a worker pod killed")


def test_a_router_is_deleted(cluster: Cluster, loaded: LoadPod, tally: Tally) -> None:
    victim = name_of(cluster.component("router")[0])
    cluster.delete_pod(victim)
    path = f"/api/v1/namespaces/{{namespace}}/pods/{victim}"
    wait_until("it is gone", lambda: cluster.find(path) is None, 120)
    wait_until("two routers", lambda: _ready(cluster.component("router")) == 2, 60)
    _end(loaded, tally, "4 a router pod deleted")


def test_redis_is_deleted(cluster: Cluster, loaded: LoadPod, tally: Tally) -> None:
    """It comes back empty, in another pod."""
    victim = name_of(cluster.component("redis")[0])
    cluster.delete_pod(victim)
    wait_until("it goes", lambda: victim not in map(name_of, cluster.component("redis")), 30)
    wait_until("another is ready", lambda: _ready(cluster.component("redis")) == 1, 60)
    loaded.more(CLIENTS)
    assert _whole(cluster)
    _end(loaded, tally, "4 the Redis pod deleted")


def test_the_leading_operator_is_deleted_during_a_drain_and_the_next_ends_it(
    cluster: Cluster, loaded: LoadPod, tally: Tally
) -> None:
    loaded.begin(CLIENTS, max_tokens=LONG)
    cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": 1}})
    [victim] = wait_until("a drain", lambda: _draining(cluster), 60)
    leader = _leader(cluster)
    cluster.delete_pod(leader)
    wait_until("another leads", lambda: _leader(cluster) not in ("", leader), 60)
    wait_until("the drain is over", lambda: len(cluster.workers(POOL)) == 1, 150)
    assert victim not in map(name_of, cluster.workers(POOL))
    assert _draining(cluster) == []
    cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": 2}})
    _heals(cluster)
    _end(loaded, tally, "4 the leading operator deleted in a drain", retried=False)


def test_a_drain_that_is_not_wanted_any_more_is_taken_back(
    cluster: Cluster, loaded: LoadPod, tally: Tally
) -> None:
    loaded.begin(CLIENTS, max_tokens=LONG)
    before = sorted(map(name_of, cluster.workers(POOL)))
    cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": 1}})
    wait_until("a drain", lambda: _draining(cluster), 60)
    cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": 2}})
    wait_until("no drain", lambda: not _draining(cluster) and _whole(cluster), 60)
    assert sorted(map(name_of, cluster.workers(POOL))) == before
    _end(loaded, tally, "4 a drain taken back", retried=False)


def _end(load: LoadPod, tally: Tally, what: str, retried: bool = True) -> None:
    """End the load, and check that every stream has finished."""
    load.more(CLIENTS)
    load.set(0)
    counts = load.count()
    tally.add(what, counts)
    assert counts.finished == counts.streams > CLIENTS, counts
    assert counts.tried_again <= (CLIENTS if retried else 0), counts


def _heals(cluster: Cluster) -> None:
    wait_until(
        "two replicas are ready",
        lambda: _whole(cluster),
        120,
        moving=lambda: stages(cluster.workers(POOL)),
    )


def _whole(cluster: Cluster) -> bool:
    pods = cluster.workers(POOL)
    return len(pods) == 2 == _ready(pods)


def _ready(pods: list[Object]) -> int:
    return sum(map(is_ready, pods))


def _draining(cluster: Cluster) -> list[str]:
    return [
        name_of(pod)
        for pod in cluster.workers(POOL)
        if DRAINING in (pod["metadata"].get("annotations") or {})
    ]


def _leader(cluster: Cluster) -> str:
    """Name of the pod that leads."""
    holder = cluster.get(LEASE)["spec"].get("holderIdentity") or ""
    pods = map(name_of, cluster.component("operator"))
    return next((pod for pod in pods if holder.startswith(pod)), "")
