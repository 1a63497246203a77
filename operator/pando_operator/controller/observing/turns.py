"""Which pool replaces its pods because the operator, and not the pool's spec, has changed.

A new version of the operator, or another worker image in its settings, changes the template of
every pool. They roll one after the other: the cluster needs room for one pod more, not for one a
pool, and a version that does not start stops at the first pool.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.kube.resources import Key, Object
from pando_operator.lifecycle.pods import TEMPLATE, marks_of, pod_view
from pando_operator.objects.build import SPEC


class Turns:
    """One for all pools of an operator."""

    def __init__(self, caches: WatchCaches) -> None:
        self._caches = caches
        self._applying: Key | None = None  # its pods are not outdated yet

    @contextmanager
    def turn(self, key: Key) -> Iterator[Key | None]:
        """While the caller applies the pool's new template. Yields the pool that has to end its
        rollout first; then nothing may be applied."""
        first = self._first(key)
        if first is None:
            self._applying = key
        try:
            yield first
        finally:
            if first is None:
                self._applying = None

    def _first(self, key: Key) -> Key | None:
        if self._applying is not None:
            return self._applying
        others = (other for other in sorted(self._caches.pools()) if other != key)
        return next((other for other in others if self._is_rolling(other)), None)

    def _is_rolling(self, key: Key) -> bool:
        deployment = self._caches.deployment(key)
        if deployment is None or deployment["spec"].get("paused") or _has_failed(deployment):
            return False
        marks = marks_of(deployment)
        views = (pod_view(pod, None, marks) for pod in self._caches.pods(key))
        return any(pod.is_alive and pod.outdated for pod in views)


def is_by_operator(wanted: Object, there: Object) -> bool:
    """Whether applying the wanted Deployment would replace pods though the pool's spec wants the
    same pods as before."""
    before = (there["metadata"].get("annotations") or {}).get(SPEC)
    is_same_spec = before in (None, wanted["metadata"]["annotations"][SPEC])
    return is_same_spec and _template_of(wanted) != _template_of(there)


def _template_of(deployment: Object) -> str:
    metadata = deployment["spec"]["template"]["metadata"]
    return str((metadata.get("annotations") or {}).get(TEMPLATE, ""))


def _has_failed(deployment: Object) -> bool:
    """Whether Kubernetes has given up waiting, so that one broken pool does not hold all others
    for ever."""
    conditions = deployment.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Progressing" and one["status"] == "False" for one in conditions)
