"""Pools follow their load; streams and the worthiest caches stay."""

import os
from datetime import datetime
from pathlib import Path

from tests.cluster.conftest import POOL, Tally
from tests.cluster.kube import POOLS, Cluster, Object, is_ready, name_of, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL
from tests.cluster.timeline import Timeline

SCALING = CHAT_POOL["scaling"]
TIMELINE = Path(os.environ.get("PANDO_TEST_TIMELINE", "dist/cluster/scaling.json"))


def test_load_scales_up_and_down_again_and_no_stream_notices(
    cluster: Cluster, load: LoadPod, tally: Tally
) -> None:
    first = load.seen
    with Timeline(cluster, POOL, target=0.7) as line:
        wait_until("a sample", lambda: line.samples, 30)
        load.set(clients := 2, max_tokens=200)
        line.clients = clients
        wait_until("streams at rest", lambda: load.streams(2**31)["ended"] > first + 3, 30)
        began = datetime.now().astimezone()
        load.set(clients := 14, max_tokens=200)
        line.clients = clients
        wait_until("three replicas are ready", lambda: _settled(cluster, 3), 180)
        ended = load.streams(2**31)["ended"]
        wait_until("streams on all three", lambda: load.streams(2**31)["ended"] > ended + 40, 60)
        load.set(clients := 2, max_tokens=200)
        line.clients = clients
        wait_until("one replica is left", lambda: _settled(cluster, 1), 150)
        ended = load.streams(2**31)["ended"]
        wait_until("streams on the one", lambda: load.streams(2**31)["ended"] > ended + 3, 60)
        load.set(0)
        line.clients = 0
        told = load.streams(first)
        counts = load.count()
    status = cluster.pool_status(POOL)
    line.write(TIMELINE, told["streams"], status["decisions"])
    tally.add("2 up to three replicas and down to one", counts)
    assert counts.finished == counts.streams > 60, counts
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts

    decisions = [
        decision
        for decision in reversed(status["decisions"])
        if datetime.fromisoformat(decision["time"]) >= began
    ]
    changes = [(decision["fromReplicas"], decision["toReplicas"]) for decision in decisions]
    assert changes == [(1, 2), (2, 3), (3, 2), (2, 1)], status["decisions"]
    assert all("pressure" in decision["reason"] for decision in decisions), decisions
    ups = [datetime.fromisoformat(decision["time"]) for decision in decisions[:2]]
    assert (ups[0] - began).total_seconds() < SCALING["windowSeconds"] + 10
    assert (ups[1] - ups[0]).total_seconds() >= 4  # one pod in five seconds, says the policy
    told_of = [event["message"] for event in cluster.events("WorkerPool", POOL)]
    assert all(any(d["reason"] in text for text in told_of) for d in decisions), told_of


def test_the_replica_whose_cache_is_worth_least_is_the_one_that_leaves(
    cluster: Cluster, load: LoadPod
) -> None:
    """The cold one is the oldest, which Kubernetes by itself would keep."""
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Manual"}})
    _scale(cluster, 3)
    wait_until("three replicas are ready", lambda: _settled(cluster, 3), 180)
    pods = sorted(cluster.workers(POOL), key=lambda pod: pod["metadata"]["creationTimestamp"])
    cold, *hot = map(name_of, pods)
    prompts = {name: _prompts_on(load, name) for name in hot}
    for turn in range(3):  # those on the hot ones grow, and are asked again
        for name, kept in prompts.items():
            for index, prompt in enumerate(kept):
                kept[index] = prompt + f" and then {turn} " + _text(f"{name}{index}{turn}", 60)
                answer = load.chat(kept[index])
                assert answer.headers["x-pando-replica"] == name
    _scale(cluster, 2)
    wait_until("two replicas are left", lambda: _settled(cluster, 2), 120)
    assert sorted(map(name_of, cluster.workers(POOL))) == sorted(hot)
    for name, kept in prompts.items():
        answer = load.chat(kept[0])
        assert answer.headers["x-pando-replica"] == name
        assert int(answer.headers["x-pando-cached-tokens"]) > 100
    assert cold not in hot


def test_a_pool_sleeps_when_idle_and_a_request_wakes_it(
    cluster: Cluster, load: LoadPod, tally: Tally
) -> None:
    calm = SCALING["behavior"]["scaleDown"] | {"stabilizationWindowSeconds": 0}
    asleep = SCALING | {
        "mode": "Auto",
        "minReplicas": 0,
        "idleSeconds": 5,
        "behavior": SCALING["behavior"] | {"scaleDown": calm},
    }
    cluster.patch_pool(POOL, {"scaling": asleep})
    wait_until("no replica is left", lambda: _settled(cluster, 0), 120)
    load.set(3, max_tokens=50, tries=1)
    wait_until("woken", lambda: load.streams(2**31)["ended"] >= load.seen + 3, 120)
    load.set(0)
    counts = load.count()
    tally.add("5 woken from zero by three requests", counts)
    assert counts.finished == counts.streams >= 3, counts
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Auto", "idleSeconds": None}})
    wait_until("awake", lambda: _settled(cluster, 1), 120)


def _settled(cluster: Cluster, count: int) -> bool:
    """So many replicas take requests, and there are no others."""
    pods = cluster.workers(POOL)
    return len(pods) == count and all(map(is_ready, pods))


def _scale(cluster: Cluster, count: int) -> Object:
    """As `kubectl scale` does."""
    return cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": count}})


def _prompts_on(load: LoadPod, replica: str) -> list[str]:
    """Prompts that were placed there, as replicas take turns."""
    found: list[str] = []
    for attempt in range(40):
        prompt = _text(f"{replica}-{attempt}", 50)
        answer = load.chat(prompt, {"x-pando-policy": "round_robin"})
        assert answer.status == 200, answer.text
        if answer.headers["x-pando-replica"] == replica:
            found.append(prompt)
        if len(found) == 3:
            return found
    raise AssertionError(f"of 40 prompts {len(found)} were placed on {replica}")


def _text(seed: str, words: int) -> str:
    return " ".join(f"{seed}.{index}" for index in range(words))
