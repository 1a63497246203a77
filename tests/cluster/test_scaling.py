"""Pools follow their load, and keep streams and the most valuable caches."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from tests.cluster.conftest import POOL, Tally
from tests.cluster.kube import POOLS, Cluster, Object, is_ready, name_of, passes, stages, wait_until
from tests.cluster.load import Answer, LoadPod
from tests.cluster.release import CHAT_POOL
from tests.cluster.timeline import Timeline

SCALING = CHAT_POOL["scaling"]
TIMELINE = Path(os.environ.get("PANDO_TEST_TIMELINE", "dist/cluster/scaling.json"))
STEP_S = 120
"""For one step of a replica: on a busy machine, importing torch alone may be slow."""

CALM = {"clients": 1, "words": 100, "max_tokens": 200}
BUSY = {"clients": 5, "words": 300, "max_tokens": 200}
"""A word is about four tokens, and half of a prompt may be shared: BUSY pins about 5,000 tokens of
KV memory. The target allows 1,638 per replica, enough for CALM, while BUSY needs three replicas."""
WAVE_S = 15.0


def test_the_replica_whose_cache_is_worth_least_is_the_one_that_leaves(
    cluster: Cluster, load: LoadPod
) -> None:
    """The cold one is the oldest, which Kubernetes alone would keep. This test runs before the
    load, as the oldest replica would otherwise have cached some of it."""
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Manual"}})
    _scale(cluster, 3)
    _settles(cluster, 3)
    pods = sorted(cluster.workers(POOL), key=lambda pod: pod["metadata"]["creationTimestamp"])
    cold, *hot = map(name_of, pods)
    talks = [talk for name in hot for talk in _talks_on(load, name, 3)]
    for turn in range(3):
        for talk in talks:
            assert talk.grow(load, turn).headers["x-pando-replica"] == talk.replica
    _scale(cluster, 2)
    _settles(cluster, 2)
    assert cold not in hot
    assert sorted(map(name_of, cluster.workers(POOL))) == sorted(hot)
    for talk in talks:
        answer = talk.grow(load, 3)
        assert answer.headers["x-pando-replica"] == talk.replica
        assert int(answer.headers["x-pando-cached-tokens"]) > 100


def test_load_scales_up_and_down_again_and_no_stream_notices(
    cluster: Cluster, load: LoadPod, tally: Tally
) -> None:
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Auto"}})
    _settles(cluster, 1)
    first = load.seen
    with Timeline(cluster, POOL, target=SCALING["target"]["pressure"]) as line:

        def ask(clients: int, **shape: int) -> None:
            load.set(clients, **shape)
            line.clients = clients

        wait_until("a sample", lambda: line.samples, 30)
        ask(**CALM)
        load.more(3)
        began = datetime.now().astimezone().replace(microsecond=0)  # the form of decisions' times
        ask(**BUSY)
        _settles(cluster, 3)
        load.more(3 * BUSY["clients"])
        ask(**CALM)
        _settles(cluster, 1)
        load.more(3)
        ask(0)
        told = load.streams(first)
        counts = load.count()
    status = cluster.pool_status(POOL)
    line.write(TIMELINE, told["streams"], status["decisions"])
    tally.add("2 up to three replicas and down to one", counts)
    assert counts.finished == counts.streams >= 21, counts
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
    _settles(cluster, 0)
    load.set(3, max_tokens=50, tries=1)
    wait_until(
        "woken",
        lambda: load.now()["ended"] >= load.seen + 3,
        STEP_S,
        moving=lambda: stages(cluster.workers(POOL)),
    )
    load.set(0)
    counts = load.count()
    tally.add("5 woken from zero by three requests", counts)
    assert counts.finished == counts.streams >= 3, counts
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts
    cluster.patch_pool(POOL, {"scaling": SCALING | {"mode": "Auto", "idleSeconds": None}})
    _settles(cluster, 1)


@pytest.mark.long
def test_no_wave_meets_a_pool_smaller_than_a_wave(
    cluster: Cluster, load: LoadPod, tally: Tally
) -> None:
    """Between two waves the average over the window asks for two replicas, and nothing but the
    check of those that would remain keeps the third."""
    hasty = SCALING["behavior"]["scaleDown"] | {"stabilizationWindowSeconds": 0}
    waves = SCALING | {
        "mode": "Auto",
        "windowSeconds": 2 * WAVE_S + 15,
        "behavior": SCALING["behavior"] | {"scaleDown": hasty},
    }
    cluster.patch_pool(POOL, {"scaling": waves})
    load.set(**BUSY)
    _settles(cluster, 3)
    sizes = []
    for _ in range(4):
        load.set(0)
        passes(WAVE_S)
        sizes.append(_staying(cluster))
        load.set(**BUSY)
        passes(WAVE_S)
    load.set(0)
    counts = load.count()
    tally.add("3 waves", counts)
    assert sizes == [3, 3, 3, 3]
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts
    _settles(cluster, 1)  # when no wave comes any more
    cluster.patch_pool(POOL, {"scaling": SCALING})
    _settles(cluster, 1)


def _staying(cluster: Cluster) -> int:
    """Replicas that do not leave."""
    status = cluster.pool_status(POOL)
    return int(status["replicas"]) - int(status.get("drainingReplicas", 0))


def _settles(cluster: Cluster, number: int) -> None:
    """Wait until `number` replicas accept requests and there are no others."""

    def settled() -> bool:
        pods = cluster.workers(POOL)
        return len(pods) == number and all(map(is_ready, pods))

    wait_until(f"{number} replicas", settled, STEP_S, moving=lambda: stages(cluster.workers(POOL)))


def _scale(cluster: Cluster, number: int) -> Object:
    """Like `kubectl scale`."""
    return cluster.patch(f"{POOLS}/{POOL}/scale", {"spec": {"replicas": number}})


@dataclass(slots=True)
class Talk:
    """A session: the router's policy `session` places all its turns on one replica."""

    session: str
    prompt: str
    replica: str

    def grow(self, load: LoadPod, turn: int) -> Answer:
        words = Random(f"{self.session} {turn}")
        self.prompt += " ".join(f" word{words.randrange(1000)}" for _ in range(60))
        return self.ask(load)

    def ask(self, load: LoadPod) -> Answer:
        headers = {"x-pando-policy": "session", "x-session-id": self.session}
        answer = load.chat(self.prompt, headers)
        assert answer.status == 200, answer.text
        return answer


def _talks_on(load: LoadPod, replica: str, number: int) -> list[Talk]:
    """Sessions of this replica, with a first turn too short to have any worth."""
    found: list[Talk] = []
    for attempt in range(60):
        talk = Talk(f"{replica}-{attempt}", f"Hello from {replica}-{attempt}.", replica)
        if talk.ask(load).headers["x-pando-replica"] == replica:
            found.append(talk)
        if len(found) == number:
            return found
    raise AssertionError(f"of 60 sessions {len(found)} were {replica}'s")
