"""Which pods may connect under network policies, by Kubernetes' rules as far as ours use them."""

from dataclasses import dataclass, field
from typing import Any

from tests.helm.chart import Manifest, of_kind


@dataclass(frozen=True, slots=True)
class Peer:
    """A pod. Without labels it is an address outside the cluster."""

    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = "llm"
    namespace_labels: dict[str, str] = field(default_factory=dict)


def may_connect(manifests: list[Manifest], source: Peer, target: Peer, port: int) -> bool:
    """Both ends must allow it. A pod that no policy selects may do anything."""
    policies = of_kind(manifests, "NetworkPolicy")
    return _allows(policies, "Egress", source, target, port) and _allows(
        policies, "Ingress", target, source, port
    )


def _allows(policies: list[Manifest], direction: str, own: Peer, other: Peer, port: int) -> bool:
    rules = [
        policy["spec"].get(direction.lower(), [])
        for policy in policies
        if direction in policy["spec"]["policyTypes"]
        and own.namespace == "llm"
        and _selects(policy["spec"]["podSelector"], own.labels)
    ]
    side = "to" if direction == "Egress" else "from"
    return not rules or any(
        _port_is(rule, port) and _peer_is(rule.get(side), other) for some in rules for rule in some
    )


NAMED = {"http": (8000, 8080, 30000)}


def _port_is(rule: Manifest, port: int) -> bool:
    ports = [one["port"] for one in rule.get("ports", ())]
    return not ports or any(port == one or port in NAMED.get(one, ()) for one in ports)


def _peer_is(peers: list[Manifest] | None, other: Peer) -> bool:
    if not peers:
        return True
    return any(
        _selects(peer.get("podSelector", {}), other.labels)
        and (
            _selects(peer["namespaceSelector"], other.namespace_labels)
            if "namespaceSelector" in peer
            else other.namespace == "llm"
        )
        and bool(other.labels)
        for peer in peers
    )


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", [])
    assert all(one["operator"] == "Exists" for one in expressions)
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        one["key"] in labels for one in expressions
    )
