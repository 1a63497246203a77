"""`helm upgrade` and `helm rollback` replace workers one by one, and no request fails."""

from collections.abc import Callable

from tests.cluster.conftest import POOL, Tally
from tests.cluster.kube import Cluster, is_ready, name_of, stages, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL, Release, Values, values

CLIENTS = 4
SETTING = "PANDO_WORKER_MAX_RUNNING_REQUESTS"


def test_changed_engine_settings_and_their_rollback_roll_without_a_failed_request(
    cluster: Cluster, release: Release, load: LoadPod, tally: Tally
) -> None:
    scaling = CHAT_POOL["scaling"] | {"minReplicas": 2}
    before = _pool({}, scaling)
    release.upgrade(before)  # undoes the changes of earlier tests
    wait_until("two replicas are ready", lambda: _running(cluster, None), 120)
    after = _pool({"maxRunningRequests": 64}, scaling)
    _rolls(cluster, load, tally, "6 helm upgrade", lambda: release.upgrade(after), "64")
    _rolls(cluster, load, tally, "6 helm rollback", release.rollback, None)


def _rolls(
    cluster: Cluster,
    load: LoadPod,
    tally: Tally,
    what: str,
    change: Callable[[], None],
    setting: str | None,
) -> None:
    old = set(map(name_of, cluster.workers(POOL)))
    load.begin(CLIENTS, max_tokens=150)
    change()
    wait_until(
        "the new settings run",
        lambda: _running(cluster, setting),
        150,
        moving=lambda: stages(cluster.workers(POOL)),
    )
    assert not old & set(map(name_of, cluster.workers(POOL)))
    load.more(CLIENTS)
    load.set(0)
    counts = load.count()
    tally.add(what, counts)
    assert counts.finished == counts.streams, counts
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts


def _running(cluster: Cluster, setting: str | None) -> bool:
    """Two ready replicas with this value of the setting, and no others."""
    pods = cluster.workers(POOL)
    have = [
        {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
        for pod in pods
    ]
    return (
        len(pods) == 2
        and all(map(is_ready, pods))
        and all(environment.get(SETTING) == setting for environment in have)
    )


def _pool(engine: Values, scaling: Values) -> Values:
    return values({POOL: CHAT_POOL | {"engine": CHAT_POOL["engine"] | engine, "scaling": scaling}})
