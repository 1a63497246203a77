"""Kubernetes 1.20's Deployment and ReplicaSet controllers, as far as a pool needs them.

Written from pkg/controller/deployment/{sync,rolling}.go and util/deployment_util.go, for maxSurge 1
and maxUnavailable 0. It computes sizes only; the caller chooses the pods.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SURGE = 1


@dataclass
class ReplicaSet:
    revision: str
    created: float
    size: int
    desired: int  # and `most`: the annotations that the last scaling wrote
    most: int


class Deployment:
    def __init__(self, replicas: int, template: str, now: float) -> None:
        self.replicas = replicas
        self.template = template
        self.sets = {template: ReplicaSet(template, now, replicas, replicas, replicas + SURGE)}

    def sync(self, available: Callable[[str], int], now: float) -> str:
        """One round, which makes at most one step; returns its kind: `scale`, `roll` or none."""
        if any(one.desired != self.replicas for one in self._active()):
            self._resize(self.scaled(self.replicas))
            return "scale"
        new = self._new(now)
        return "roll" if self._grow(new) or self._shrink_old(new, available) else ""

    def scaled(self, replicas: int) -> dict[str, int]:
        """Sizes of the ReplicaSets after `scale`."""
        active = self._active()
        if len(active) <= 1:
            return {one.revision: replicas for one in active or [self._latest()]}
        allowed = replicas + SURGE if replicas else 0
        change = allowed - sum(one.size for one in active)
        by_age = 1 if change < 0 else -1
        active.sort(key=lambda one: (-one.size, by_age * one.created))
        sizes, added = {}, 0
        for one in active:
            share = self._share(one, replicas, change, added) if change else 0
            sizes[one.revision] = one.size + share
            added += share
        sizes[active[0].revision] = max(0, sizes[active[0].revision] + change - added)
        return sizes

    @staticmethod
    def _share(one: ReplicaSet, replicas: int, change: int, added: int) -> int:
        if change == added:
            return 0
        if not replicas:
            return max(-one.size, change - added)
        fraction = math.floor(one.size * (replicas + SURGE) / one.most + 0.5) - one.size
        return min(fraction, change - added) if change > 0 else max(fraction, change - added)

    def _resize(self, sizes: dict[str, int]) -> None:
        for revision, size in sizes.items():
            one = self.sets[revision]
            one.size, one.desired, one.most = size, self.replicas, self.replicas + SURGE

    def _active(self) -> list[ReplicaSet]:
        return [one for one in self.sets.values() if one.size]

    def _latest(self) -> ReplicaSet:
        newest = max(self.sets.values(), key=lambda one: one.created)
        return self.sets.get(self.template, newest)

    def _new(self, now: float) -> ReplicaSet:
        if self.template not in self.sets:
            most = self.replicas + SURGE
            self.sets[self.template] = ReplicaSet(self.template, now, 0, self.replicas, most)
        return self.sets[self.template]

    def _grow(self, new: ReplicaSet) -> bool:
        room = self.replicas + SURGE - sum(one.size for one in self.sets.values())
        size = new.size + max(0, min(room, self.replicas - new.size))
        if new.size > self.replicas:
            size = self.replicas
        changed, new.size = size != new.size, size
        new.desired, new.most = self.replicas, self.replicas + SURGE
        return changed

    def _shrink_old(self, new: ReplicaSet, available: Callable[[str], int]) -> bool:
        old = sorted((one for one in self._active() if one is not new), key=lambda one: one.created)
        everything = [*old, new]
        ready = {one.revision: min(one.size, available(one.revision)) for one in everything}
        spare = sum(one.size for one in everything) - self.replicas
        spare -= new.size - ready[new.revision]
        if spare <= 0:
            return False
        unhealthy = self._take(old, spare, lambda one: one.size - ready[one.revision])
        spare = sum(min(one.size, ready[one.revision]) for one in everything) - self.replicas
        return bool(self._take(old, spare, lambda one: one.size) + unhealthy)

    @staticmethod
    def _take(sets: Iterable[ReplicaSet], most: int, of: Callable[[ReplicaSet], int]) -> int:
        taken = 0
        for one in sets:
            count = max(0, min(most - taken, of(one)))
            one.size -= count
            taken += count
        return taken
