"""Network policies allow the necessary paths and no others."""

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
    "pools": component("pools"),
    "test": component("test"),
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
    ("test", "router"),
    ("router", "worker"),
    ("operator", "worker"),
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


WEB = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}


def test_scrapers_reach_all_that_have_metrics_and_nobody_does_unasked() -> None:
    inside = {"podSelector": {"matchLabels": {"app": "other"}}}
    policy = {"enabled": True, "clients": [inside], "scrapers": [WEB]}
    scraped = {("web", "worker"), ("web", "operator"), ("web", "router")}
    assert paths(render({"networkPolicy": policy})) == NEEDED | scraped | {("pod", "router")}
    del policy["scrapers"]
    assert paths(render({"networkPolicy": policy})) == NEEDED | {("pod", "router")}


@pytest.mark.parametrize("port", [53, 443, 6443])
def test_names_are_found_and_the_api_server_and_the_hub_are_reached(port: int) -> None:
    manifests = render({"networkPolicy": {"enabled": True}})
    reach = {
        name
        for name in ("router", "operator", "worker", "redis", "pools", "test")
        if may_connect(manifests, PEERS[name], PEERS["outside"], port)
    }
    api = {"operator", "worker", "pools"}
    assert reach == (api | {"router", "test"} if port == 53 else api)


def test_no_ports_are_no_connection_and_not_all() -> None:
    manifests = render({"networkPolicy": {"enabled": True, "httpsPorts": []}})
    assert not may_connect(manifests, PEERS["operator"], PEERS["outside"], 443)
    assert not may_connect(manifests, PEERS["worker"], PEERS["outside"], 9999)


def test_further_rules_lead_to_an_external_redis() -> None:
    values = dict(values_of("external-redis-values.yaml")) | {
        "networkPolicy": {
            "enabled": True,
            "extraEgress": [{"to": [WEB], "ports": [{"port": 6380}]}],
        }
    }
    manifests = render(values)
    for name in ("router", "operator", "worker"):
        assert may_connect(manifests, PEERS[name], PEERS["web"], 6380)
