"""The restricted profile of Kubernetes' pod security standards, written from its documentation."""

from typing import Any

from tests.helm.chart import Manifest, containers

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(pod: Manifest) -> list[str]:
    """The pod's violations of the profile."""
    spec = pod["spec"]
    found = [
        f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)
    ]
    found += [
        f"volume {volume['name']} is a {kind}"
        for volume in spec.get("volumes", ())
        for kind in set(volume) - {"name"} - VOLUMES
    ]
    for container in containers(pod):
        own = container.get("securityContext", {})
        found += [
            f"{container['name']}: {what}"
            for what in _of_container(container, own, spec.get("securityContext", {}))
        ]
    return found


def _of_container(container: Manifest, own: Manifest, pods: Manifest) -> list[str]:
    def effective(field: str) -> Any:
        return own.get(field, pods.get(field))

    capabilities = own.get("capabilities", {})
    wrong = {
        "is privileged": own.get("privileged"),
        "may gain privileges": own.get("allowPrivilegeEscalation") is not False,
        "may run as root": effective("runAsNonRoot") is not True,
        "runs as root": effective("runAsUser") == 0,
        "has no seccomp profile": (effective("seccompProfile") or {}).get("type") not in SECCOMP,
        "keeps capabilities": "ALL" not in capabilities.get("drop", ()),
        "adds capabilities": set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"},
        "has ports of the host": any("hostPort" in port for port in container.get("ports", ())),
    }
    return [what for what, holds in wrong.items() if holds]
