"""Why a pool's pods do not run, in the words of the scheduler and the kubelet.

Pods report the cause at once. A Deployment reports a lack of progress only after its progress
deadline, which must allow for slow model loads.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pando_operator.kube.resources import Object

UNSCHEDULED_S = 30.0
"""Seconds that a pod may wait for a node without being in trouble: the node, or a volume, may be
on its way."""

LOOPS = 2
"""Restarts after which a container that is not ready counts as crash-looping."""

_ON_ITS_WAY = frozenset(("", "ContainerCreating", "PodInitializing"))
_PULLS = frozenset(("ErrImagePull", "ImagePullBackOff"))


class Trouble(NamedTuple):
    reason: str  # one CamelCase word
    message: str


def pods_trouble(pods: Sequence[Object], now: float) -> Trouble | None:
    """The most common trouble of the pods that are to run; None if all do."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if pod["metadata"].get("deletionTimestamp") or _has_ended(pod):
            continue
        trouble = next(_troubles(pod, now), None)
        if trouble is not None:
            found[trouble.reason].append(f"{pod['metadata']['name']}: {trouble.message}")
    if not found:
        return None
    reason = max(sorted(found), key=lambda one: len(found[one]))
    first, *others = found[reason]
    more = f" (and {len(others)} more)" if others else ""
    return Trouble(reason, f"pod {first}{more}")


def keeps_from_starting(pod: Object) -> bool:
    """Whether a pod has a trouble that is no part of a start. To wait for a node is a part."""
    containers = _container_troubles(pod.get("status") or {})
    return next(containers, None) is not None


def _has_ended(pod: Object) -> bool:
    """An evicted or failed pod stays as it ended until somebody deletes it; another one has
    replaced it."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _troubles(pod: Object, now: float) -> Iterator[Trouble]:
    status = pod.get("status") or {}
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("reason") == "Unschedulable":
            since = one.get("lastTransitionTime")
            if since and now - datetime.fromisoformat(since).timestamp() >= UNSCHEDULED_S:
                yield Trouble("Unschedulable", one.get("message") or "no node accepts it")
    yield from _container_troubles(status)


def _container_troubles(status: Object) -> Iterator[Trouble]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            yield from _of_container(container)


def _of_container(status: Object) -> Iterator[Trouble]:
    """Troubles in words that stay the same while the trouble lasts: a crash-looping container runs
    in between, and the kubelet alternates between two reasons for an image that it cannot pull."""
    name, waiting = status["name"], (status.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason") or ""
    ended = (status.get("lastState") or {}).get("terminated") or {}
    keeps_ending = ended and not status.get("ready") and status.get("restartCount", 0) >= LOOPS
    if reason == "CrashLoopBackOff" or (keeps_ending and reason in _ON_ITS_WAY):
        why = f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode', 'unknown')}"
        yield Trouble("CrashLoopBackOff", f"container {name} keeps exiting ({why})")
    elif reason in _PULLS:
        image = status.get("image") or ""
        yield Trouble("ImagePullBackOff", f"the image {image} of container {name} cannot be pulled")
    elif reason not in _ON_ITS_WAY:
        yield Trouble(reason, f"container {name}: {waiting.get('message') or reason}")
