"""What the operator knows of the cluster: pools and their objects, from watches.

Everything is read from memory and may be slightly old, but the results of the operator's own writes
are visible at once. A change wakes the loop of its pool.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from pando_operator.kube.backoff import Backoff
from pando_operator.kube.client import Kube
from pando_operator.kube.resources import (
    DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
    WORKER_POOLS,
    Key,
    Object,
    Resource,
    key_of,
)
from pando_operator.kube.watched import Watched
from pando_operator.objects.labels import POOL_LABEL, any_selector_text

ALL = ("",)  # the API's name for all namespaces


class WatchCaches:
    """Start `run`, then wait for `settled`."""

    def __init__(
        self,
        kube: Kube,
        namespaces: Sequence[str],
        wake: Callable[[Key], None],
        on_restart: Callable[[str], None],
        budgets: Resource,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self.budgets = budgets  # the API version of PodDisruptionBudgets that the server has
        self._wake = wake
        self._namespaces = tuple(dict.fromkeys(namespaces)) or ALL
        self._pods: defaultdict[Key, dict[Key, Object]] = defaultdict(dict)  # by pool

        def watch(
            resource: Resource,
            selector: str,
            on_change: Callable[[Object | None, Object | None], None],
        ) -> tuple[Watched, ...]:
            return tuple(
                Watched(
                    kube,
                    resource,
                    namespace,
                    selector,
                    on_change=on_change,
                    on_restart=on_restart,
                    backoff=backoff(),
                )
                for namespace in self._namespaces
            )

        self._watches = {
            WORKER_POOLS: watch(WORKER_POOLS, "", self._pool_changed),
            DEPLOYMENTS: watch(DEPLOYMENTS, POOL_LABEL, self._part_changed),
            SERVICES: watch(SERVICES, POOL_LABEL, self._part_changed),
            budgets: watch(budgets, POOL_LABEL, self._part_changed),
            PODS: watch(PODS, any_selector_text(), self._pod_changed),
        }
        # Nodes belong to no namespace, and an operator that may not see them does the rest.
        self._cordoned = Watched(
            kube,
            NODES,
            fields="spec.unschedulable=true",
            on_change=self._node_changed,
            on_restart=on_restart,
            backoff=backoff(),
        )

    async def run(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watched in (*self._all(), self._cordoned):
                tasks.create_task(watched.run())

    async def settled(self) -> None:
        """Wait until each kind is known, or known to be refused, in each namespace."""
        for watched in self._all():
            await watched.settled.wait()

    @property
    def silent_s(self) -> float:
        """Seconds since the quietest watch last heard from the API server."""
        return max(watched.silent_s for watched in self._all())

    def silent_in_s(self, namespace: str) -> float:
        """The same for the watches that show a namespace; infinite until all have been listed."""
        return max(watched.silent_s for watched in self._in(namespace))

    def refusal(self, namespace: str) -> str:
        """Why the operator may not see a kind of objects in the namespace; "" if it may."""
        return next(filter(None, (watched.refusal for watched in self._in(namespace))), "")

    @property
    def errors(self) -> list[str]:
        """Why watches are failing now."""
        return [watched.error for watched in self._all() if watched.error]

    def covers(self, namespace: str) -> bool:
        """Whether this operator manages pools in the namespace, and has seen them."""
        pools = self._watches[WORKER_POOLS]
        mine = [watched for watched in pools if watched.namespace in ("", namespace)]
        return any(watched.synced.is_set() for watched in mine)

    def pools(self) -> list[Key]:
        return [key for watched in self._watches[WORKER_POOLS] for key in watched.objects]

    def pool(self, key: Key) -> Object | None:
        return self._find(WORKER_POOLS, key)

    def deployment(self, key: Key) -> Object | None:
        return self._find(DEPLOYMENTS, key)

    def service(self, key: Key) -> Object | None:
        return self._find(SERVICES, key)

    def budget(self, key: Key) -> Object | None:
        return self._find(self.budgets, key)

    def pods(self, key: Key) -> list[Object]:
        """A pool's pods, sorted by name. A pod that was taken from its ReplicaSet, such as for
        debugging, is none of them: Kubernetes has replaced it."""
        found = sorted(self._pods.get(key, {}).items())
        return [pod for _, pod in found if _has_replica_set(pod)]

    @property
    def sees_cordons(self) -> bool:
        """Whether it knows which nodes are being emptied."""
        return self._cordoned.synced.is_set() and not self._cordoned.refusal

    def is_cordoned(self, pod: Object) -> bool:
        """Whether the pod's node takes no new pods."""
        return Key("", pod["spec"].get("nodeName", "")) in self._cordoned.objects

    def adopt(self, resource: Resource, item: Object) -> None:
        """Take over the object that a write returned."""
        for watched in self._watches[resource]:
            watched.adopt(item)

    def _all(self) -> list[Watched]:
        return [watched for group in self._watches.values() for watched in group]

    def _in(self, namespace: str) -> list[Watched]:
        return [watched for watched in self._all() if watched.namespace in ("", namespace)]

    def _find(self, resource: Resource, key: Key) -> Object | None:
        found = (watched.objects.get(key) for watched in self._watches[resource])
        return next((item for item in found if item is not None), None)

    def _pool_changed(self, old: Object | None, new: Object | None) -> None:
        item = new or old
        assert item is not None
        key = key_of(item)
        if old is None or new is None or _spec_changed(old, new):
            self._wake(key)

    def _part_changed(self, old: Object | None, new: Object | None) -> None:
        self._wake_each(_pool_of(old), _pool_of(new))

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        before, after = _pool_of(old), _pool_of(new)
        if old is not None and before is not None and before != after:
            self._pods[before].pop(key_of(old), None)
            if not self._pods[before]:
                del self._pods[before]
        if new is not None and after is not None:
            self._pods[after][key_of(new)] = new
        self._wake_each(before, after)

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        node = (new or old or {})["metadata"]["name"]
        for pool, pods in list(self._pods.items()):
            if any(pod["spec"].get("nodeName") == node for pod in pods.values()):
                self._wake(pool)

    def _wake_each(self, *pools: Key | None) -> None:
        for pool in filter(None, dict.fromkeys(pools)):
            self._wake(pool)


def _pool_of(item: Object | None) -> Key | None:
    """The pool that the object's label names; None without an object, or if somebody has taken the
    label away and only the answer to a write of ours shows that yet."""
    if item is None:
        return None
    pool = (item["metadata"].get("labels") or {}).get(POOL_LABEL)
    return Key(key_of(item).namespace, pool) if pool else None


def _has_replica_set(pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("controller") and one["kind"] == "ReplicaSet" for one in owners)


def _spec_changed(old: Object, new: Object) -> bool:
    """Whether anything but the status changed: only the operator itself writes that."""
    before, after = old["metadata"], new["metadata"]
    return any(
        before.get(name) != after.get(name)
        for name in ("uid", "generation", "annotations", "deletionTimestamp")
    )
