"""Runs one loop for each pool, and removes the Redis rows of pools that no longer exist."""

import asyncio
import logging

from pando_fleet.redis.client import FleetError
from pando_operator.controller.pool_loop import PoolLoop
from pando_operator.controller.shared import Shared
from pando_operator.kube.resources import Key

SWEEP_S = 60.0

log = logging.getLogger("pando.operator")


class Manager:
    """`run` it while leading; `shared.caches` calls `wake`."""

    def __init__(self) -> None:
        self._loops: dict[Key, tuple[PoolLoop, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()  # a pool was created or deleted

    def wake(self, key: Key) -> None:
        """Reconcile a pool now, since something about it has changed."""
        if (found := self._loops.get(key)) is not None:
            found[0].wake()
        else:
            self._changed.set()

    async def run(self, shared: Shared) -> None:
        """Runs until it is cancelled, then ends all loops."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(shared.caches.run())
                await shared.caches.settled()
                log.info("pools are known", extra={"pools": len(shared.caches.pools())})
                while True:
                    self._changed.clear()
                    self._follow(shared, tasks)
                    await self._sweep(shared)
                    await self._wait()
        finally:
            self._loops.clear()
            shared.metrics.forget_pools()

    def _follow(self, shared: Shared, tasks: asyncio.TaskGroup) -> None:
        there = set(shared.caches.pools())
        for key, (_, task) in list(self._loops.items()):
            if task.done():  # its pool was deleted, and may exist again
                del self._loops[key]
                shared.metrics.forget(key.namespace, key.name)
        for key in sorted(there - self._loops.keys()):
            loop = PoolLoop(shared, key)
            task = tasks.create_task(loop.run(), name=f"pool {key}")
            task.add_done_callback(lambda _: self._changed.set())
            self._loops[key] = loop, task

    async def _sweep(self, shared: Shared) -> None:
        """Remove from Redis what any operator wrote about pools that no longer exist."""
        try:
            for name, owner in (await shared.expected.owners()).items():
                namespace, _, pool = owner.partition("/")
                key = Key(namespace, pool)
                is_gone = shared.caches.pool(key) is None
                # Before names had namespaces, that of another one was in Redis without.
                is_old = name != shared.settings.name_in_fleet(namespace, pool)
                if pool and shared.caches.covers(namespace) and (is_gone or is_old):
                    await shared.expected.remove(name)
                    await shared.past.remove(name)
                    log.info("pool is gone", extra={"pool": str(key)})
        except FleetError as error:
            log.warning("gone pools stay in Redis for now", extra={"error": str(error)})

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(SWEEP_S):
                await self._changed.wait()
        except TimeoutError:
            return
