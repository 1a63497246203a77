"""The restricted pod security standard, as Kubernetes' documentation has it, for a pod's spec."""

from tests.cluster.kube import Object

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


def violations(pod: Object) -> list[str]:
    """What it does not keep to, and whether a container may write to its own root."""
    spec = pod["spec"]
    wrong = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    wrong += [
        f"volume {volume['name']}"
        for volume in spec.get("volumes", ())
        if not VOLUMES & set(volume)
    ]
    of_pod = spec.get("securityContext", {})
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        own = container.get("securityContext", {})
        both = of_pod | own
        kept = {
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser") != 0,
            "seccompProfile": both.get("seccompProfile", {}).get("type")
            in ("RuntimeDefault", "Localhost"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "privileged": not own.get("privileged"),
            "capabilities": "ALL" in own.get("capabilities", {}).get("drop", ())
            and set(own.get("capabilities", {}).get("add", ())) <= {"NET_BIND_SERVICE"},
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", ())),
            "readOnlyRootFilesystem": own.get("readOnlyRootFilesystem") is True,
        }
        wrong += [f"{container['name']}: {name}" for name, fine in kept.items() if not fine]
    return wrong
