"""The chart as the tests install it: small, with images that the cluster already has."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helm_python import Config

CHART = Path(__file__).parents[2] / "helm" / "pando"
NAME = "pando"
MODEL = "/models/pando-tiny"
SERVED = "pando-tiny"
TIMEOUT_S = 180

Values = dict[str, Any]


def image(part: str) -> str:
    """The image from PANDO_TEST_ROUTER_IMAGE and so on; by default the Dockerfile's, built here."""
    return os.environ.get(f"PANDO_TEST_{part.upper()}_IMAGE", f"localhost/pando-{part}:dev")


def parted(reference: str) -> Values:
    """An image reference in the form of the chart's values."""
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}}

# The target is low, so that a few clients exceed it while a replica's KV memory still holds all
# their
# streams: nothing waits for room except in tests of that. Windows are short to shorten the run.
CHAT_POOL: Values = {
    "model": MODEL,
    "engine": {"threads": 1, "memoryGib": 0.5, "maxTotalTokens": 8192},
    "template": {"resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}},
    "scaling": {
        "mode": "Auto",
        "minReplicas": 1,
        "maxReplicas": 3,
        "target": {"pressure": 0.2},
        "windowSeconds": 5,
        "behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]},
            "scaleDown": {
                "stabilizationWindowSeconds": 10,
                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}],
            },
        },
        "drain": {"timeoutSeconds": 60, "handOffTokens": 4096},
        "warm": {"tokens": 4096, "timeoutSeconds": 20},
    },
}


def values(pools: Mapping[str, Values], **more: Any) -> Values:
    return {
        "pools": {"default": None} | dict(pools),
        "workers": {"image": parted(image("worker"))},
        "router": {
            "image": parted(image("router")),
            "replicas": 2,
            "resources": RESOURCES,
            "settings": {"allow_policy_header": True},
        },
        "operator": {"image": parted(image("operator")), "replicas": 2, "resources": RESOURCES},
        "redis": {"image": parted(image("redis")), "resources": RESOURCES},
    } | more


@dataclass(slots=True)
class Release:
    """`helm` in one namespace."""

    namespace: str

    def install(self, given: Values) -> None:
        """Installs the release, or upgrades it if it exists."""
        with Config(namespace=self.namespace) as helm:
            if helm.list(all_states=True, name_filter=f"^{NAME}$"):
                self.upgrade(given)
            else:
                helm.install(CHART, NAME, given, wait="watcher", timeout=TIMEOUT_S)

    def upgrade(self, given: Values) -> None:
        with Config(namespace=self.namespace) as helm:
            helm.upgrade(CHART, NAME, given, wait="watcher", timeout=TIMEOUT_S, reset_values=True)

    def rollback(self) -> None:
        with Config(namespace=self.namespace) as helm:
            helm.rollback(NAME, wait="watcher", timeout=TIMEOUT_S)

    def test(self) -> None:
        """Raises HelmReleaseError if one of the chart's tests failed."""
        with Config(namespace=self.namespace) as helm:
            helm.test(NAME, timeout=TIMEOUT_S)

    def uninstall(self) -> None:
        with Config(namespace=self.namespace) as helm:
            helm.uninstall(NAME, ignore_not_found=True, wait="watcher", timeout=TIMEOUT_S)
