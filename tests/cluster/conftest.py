"""Tests on the cluster that KUBECONFIG names, with images that it has: `make test-cluster`.

All tests share one release in its own namespace and run in the order below. A table at the end
shows the outcome of every stream.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.kube import Cluster, is_ready, stages, wait_until
from tests.cluster.load import Counts, LoadPod
from tests.cluster.release import CHAT_POOL, NAME, SERVED, Release, image, values

ORDER = (
    "test_install",
    "test_scaling",
    "test_tune",
    "test_adapters",
    "test_speech",
    "test_failures",
    "test_bad_days",
    "test_lost_replicas",
    "test_upgrade",
    "test_uninstall",
)
POOL = "chat"
COUNTS = pytest.StashKey[list[tuple[str, Counts]]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders the tests by the release's life; without a cluster skips them all."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in here:
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(600))
        if not os.environ.get("KUBECONFIG"):
            item.add_marker(pytest.mark.skip(reason="KUBECONFIG names no cluster"))
    ordered = sorted(here, key=lambda item: ORDER.index(item.path.stem))
    places = [index for index, item in enumerate(items) if item in here]
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counted = terminalreporter.config.stash[COUNTS]
    if not counted:
        return
    terminalreporter.section("streams")
    heads = ("streams", "finished", "tried again", "failed", "cut", "first p50", "first p99", "gap")
    terminalreporter.line(f"{'':44}" + "".join(f"{head:>12}" for head in heads))
    for what, counts in counted:
        cells = (
            *(counts.streams, counts.finished, counts.tried_again, counts.failed, counts.cut),
            *(f"{counts.first_s(0.5):.2f} s", f"{counts.first_s(0.99):.2f} s"),
            f"{counts.longest_gap_s:.2f} s",
        )
        terminalreporter.line(f"{what:44}" + "".join(f"{cell:>12}" for cell in cells))


class Tally:
    """Collects the tests' counts for the table at the end."""

    def __init__(self, rows: list[tuple[str, Counts]]) -> None:
        self._rows = rows

    def add(self, what: str, counts: Counts) -> None:
        self._rows.append((what, counts))
        print(f"{what}: {counts}")


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    return Tally(pytestconfig.stash[COUNTS])


KEEP = bool(os.environ.get("PANDO_TEST_KEEP"))
"""For writing tests: keep the release, and let the next session use it again."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A namespace that is deleted with the session. It always has the same name: the definition of
    WorkerPools outlives a release, and only a release in the same namespace may take it over."""
    cluster = Cluster("pando-test")
    path = f"/api/v1/namespaces/{cluster.namespace}"
    if not KEEP:
        cluster.delete(path)
        wait_until("the last session's namespace is gone", lambda: not cluster.find(path), 120)
    if not cluster.find(path):
        cluster.create("/api/v1/namespaces", {"metadata": {"name": cluster.namespace}})
    yield cluster
    if not KEEP:
        cluster.delete(path)


@pytest.fixture(scope="session")
def release(cluster: Cluster) -> Iterator[Release]:
    """The chart with one ready pool."""
    release = Release(cluster.namespace)
    release.install(values({POOL: CHAT_POOL}))
    wait_until(
        "the first worker is ready",
        lambda: any(map(is_ready, cluster.workers(POOL))),
        120,
        moving=lambda: stages(cluster.workers(POOL)),
    )
    yield release
    if not KEEP:
        release.uninstall()


@pytest.fixture(scope="session")
def load_pod(cluster: Cluster, release: Release) -> Iterator[LoadPod]:
    pod = LoadPod(cluster, SERVED)
    pod.start(f"http://{NAME}-router", image("operator"))
    yield pod
    pod.stop()


@pytest.fixture
def load(load_pod: LoadPod) -> Iterator[LoadPod]:
    """The load pod without clients; a test's clients end with the test."""
    yield load_pod
    if load_pod.is_there():
        load_pod.set(0)
        load_pod.count()
