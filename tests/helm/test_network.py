"""Network policies allow the paths that are needed, and no other."""

import itertools

import pytest

from pando_operator.objects.labels import labels
from tests.helm.chart import Manifest, of_kind, render, values_of
from tests.helm.policies import Peer, may_connect


def component(name: str) -> Peer:
    own = {"app.kubernetes.io/name": "pando", "app.kubernetes.io/instance": "pando"}
    return Peer(own | {"app.kubernetes.io/component": name})


PEERS = {
    "router": component("router"),
    "operator": component("operator"),
    "redis": component("redis"),
    "worker": Peer(labels("default")),
    "pod": Peer({"app": "other"}),
    "web": Peer({"app": "web"}, "web", {"kubernetes.io/metadata.name": "web"}),
    "outside": Peer({}, "", {}),
}
PORTS = {"router": 8000, "operator": 8080, "redis": 6379, "worker": 30000}


def paths(manifests: list[Manifest]) -> set[tuple[str, str]]:
    return {
        (source, target)
        for source, target in itertools.permutations(PEERS, 2)
        if target in PORTS and may_connect(manifests, PEERS[source], PEERS[target], PORTS[target])
    }


NEEDED = {
    ("router", "worker"),
    ("router", "redis"),
    ("operator", "redis"),
    ("worker", "redis"),
}


def test_without_policies_everybody_reaches_everybody() -> None:
    manifests = render({})
    assert not of_kind(manifests, "NetworkPolicy")
    assert ("pod", "worker") in paths(manifests)


def test_policies_leave_what_is_needed_and_routers_for_all() -> None:
    clients = {("pod", "router"), ("web", "router"), ("outside", "router")}
    assert paths(render({"networkPolicy": {"enabled": True}})) == NEEDED | clients


def test_named_clients_alone_reach_routers() -> None:
    assert paths(render(values_of("api-keys-values.yaml"))) == NEEDED | {("web", "router")}


def test_scrapers_reach_workers_and_operator_where_these_are_scraped() -> None:
    values = {
        "networkPolicy": {
            "enabled": True,
            "scrapers": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}
            ],
        },
        "monitoring": {"podMonitor": {"enabled": True}},
    }
    scraped = {("web", "worker"), ("web", "operator")}
    clients = {("pod", "router"), ("web", "router"), ("outside", "router")}
    assert paths(render(values)) == NEEDED | scraped | clients


@pytest.mark.parametrize("port", [53, 443, 6443])
def test_names_are_found_and_the_api_server_and_the_hub_are_reached(port: int) -> None:
    manifests = render({"networkPolicy": {"enabled": True}})
    reach = {
        name
        for name in ("router", "operator", "worker", "redis")
        if may_connect(manifests, PEERS[name], PEERS["outside"], port)
    }
    assert reach == ({"router", "operator", "worker"} if port == 53 else {"operator", "worker"})


def test_helms_test_reaches_routers_whoever_their_clients_are() -> None:
    manifests = render(values_of("api-keys-values.yaml"))
    assert may_connect(manifests, component("test"), PEERS["router"], 8000)
