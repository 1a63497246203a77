"""The loop of one pool: observe, decide, plan, act, report; on each change and at intervals.

Each reconcile starts from what exists, not from what the last one did. So nothing has to be undone
after a failure at any step, or when a new operator takes over. While Redis is unreachable no
replica leaves the fleet; while the API server is unreachable nothing changes at all.
"""

import asyncio
import logging
from dataclasses import replace

from pando_fleet.placement.worth import Worths
from pando_fleet.records.loads import Loads
from pando_fleet.records.marks import Marks
from pando_fleet.redis.client import FleetError
from pando_operator.controller.acting.adapter_keeper import AdapterKeeper
from pando_operator.controller.acting.execute import Executor
from pando_operator.controller.acting.owned_objects import REFUSALS, OwnedObjects, replicas_of
from pando_operator.controller.loop_steps import (
    decided,
    follow_replaced,
    follow_shadows,
    follow_starts,
    follow_traffic,
    recorded,
    staying,
)
from pando_operator.controller.memory import Memory
from pando_operator.controller.observation import Observation
from pando_operator.controller.observing.gpu_shares import HeldGpus
from pando_operator.controller.observing.pod_troubles import keeps_from_starting
from pando_operator.controller.observing.reading import Reader, Reading
from pando_operator.controller.observing.sightings import Sightings
from pando_operator.controller.overruling import new_overruled
from pando_operator.controller.reporting.reporter import Reporter
from pando_operator.controller.shared import Shared
from pando_operator.controller.verdicts import degraded, refused, trouble
from pando_operator.kube.backoff import Backoff
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import Key, Object
from pando_operator.kube.watched import STALE_S
from pando_operator.lifecycle.census import census, silent
from pando_operator.lifecycle.choice import is_open
from pando_operator.lifecycle.moving import size_to_plan
from pando_operator.lifecycle.plan import plan
from pando_operator.lifecycle.pods import PodView, marks_of, pod_view
from pando_operator.resource.parse import InvalidPool, stored
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.scaling import Drain, Mode, Scaling, Warm
from pando_operator.scaling import late_after_s, learned_start_s

GATHER_S = 0.1
"""Wait after a change, so that changes close together cause one reconcile."""

UNKNOWN = Scaling(drain=Drain(hand_off_tokens=0), warm=Warm(tokens=0))
"""For a pool whose spec was never valid: its requests still get time to finish."""


log = logging.getLogger("pando.operator")


class PoolLoop:
    """`run` ends when the pool is deleted; `wake` starts a reconcile now."""

    def __init__(self, shared: Shared, key: Key) -> None:
        self.key = key
        self._shared = shared
        name = shared.settings.name_in_fleet(key.namespace, key.name)
        marks, loads = Marks(shared.redis, name), Loads(shared.redis, name)
        worths = Worths(shared.redis, name)
        self._reader = Reader(shared.registry, shared.queues, marks, loads, worths, name)
        self._executor = Executor(shared.kube, shared.caches, marks, key, self._did)
        kube, caches, turns = shared.kube, shared.caches, shared.turns
        self._owned = OwnedObjects(
            kube, caches, turns, self._executor, shared.settings, key, shared.server_minor
        )
        self._reporter = Reporter(shared, key)
        self._adapters = AdapterKeeper(shared.workers, shared.metrics, key, shared.clock, self.wake)
        self._memory: Memory | None = None
        self._scaling = UNKNOWN  # the last valid one
        self._parsed: tuple[Object, WorkerPool] | None = None
        self._uid = ""
        self._newer: tuple[str, ...] = ()  # fields that only a newer operator knows
        self._sightings = Sightings(shared.clock)
        self._woken = asyncio.Event()
        self._failed = ""  # the failure logged last

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            self._shared.gpus.forget(self.key)
            await self._adapters.close()

    async def _run(self) -> None:
        backoff = Backoff(0.5, 30.0)
        while (item := self._shared.caches.pool(self.key)) is not None:
            self._woken.clear()
            started, outcome = self._shared.clock(), "ok"
            try:
                pause_s = await self._reconcile(item)
                backoff.reset()
                self._failed = ""
            except REFUSALS as error:
                outcome, pause_s = "api", self._shared.settings.period
                self._log(str(error))
            except KubeError as error:
                outcome, pause_s = "api", backoff.next()
                self._log(str(error))
            except (FleetError, TimeoutError) as error:  # Redis failed between two steps
                outcome, pause_s = "redis", backoff.next()
                self._log(f"Redis: {error or type(error).__name__}")
            except Exception:
                # A defect must end neither this pool's loop nor the loops of other pools.
                outcome, pause_s = "error", backoff.next()
                log.exception("reconcile failed", extra={"pool": str(self.key)})
            self._shared.gpus.seen(self.key)
            self._measure(outcome, self._shared.clock() - started)
            await self._pause(pause_s, may_wake=outcome == "ok")

    async def _pause(self, seconds: float, *, may_wake: bool) -> None:
        """After a failure, changes must not shorten the pause: failing tries may cause them."""
        if not may_wake:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
            await asyncio.sleep(GATHER_S)
        except TimeoutError:
            return

    async def _reconcile(self, item: Object) -> float:
        """Returns the seconds until the next reconcile. Raises KubeError."""
        caches, now = self._shared.caches, self._shared.now()
        if (silent_s := caches.silent_in_s(self.key.namespace)) > STALE_S:
            if refusal := caches.refusal(self.key.namespace):
                verdict = trouble("Forbidden", refusal)
                await self._reporter.refuse(item, verdict, self._memory, now)
                return self._shared.settings.period
            raise KubeError(f"the API server has been silent for {silent_s:.0f} s")
        if item["metadata"].get("deletionTimestamp"):
            return self._shared.settings.period  # Kubernetes deletes the objects that it owns
        try:
            pool = self._parse(item)
        except InvalidPool as error:
            await self._hold_size(now)
            verdict = trouble("InvalidSpec", str(error))
            await self._reporter.refuse(item, verdict, self._memory, now)
            return self._shared.settings.period
        memory = self._recall(pool)
        try:
            seen = await self._reconcile_valid(item, pool, memory, now)
        except REFUSALS as error:
            # Show it in the status, if that can be written.
            await self._reporter.refuse(item, refused(error), memory, now)
            raise
        if seen.refusal is not None:
            raise seen.refusal
        return self._shared.settings.busy_period if seen.is_busy else self._shared.settings.period

    async def _reconcile_valid(
        self, item: Object, pool: WorkerPool, memory: Memory, now: float
    ) -> Observation:
        """Reconcile a pool whose spec is valid."""
        seen = await self._observe(item, pool, memory, now)
        if overruled := new_overruled(memory, pool, seen.deployment, seen.desired):
            await self._reporter.overruled(item, overruled)
        try:
            if seen.mode is Mode.AUTO:
                await self._owned.keep_size(pool, memory, seen.desired)
            replicas = await self._owned.apply(pool, memory, seen.desired)
        except REFUSALS as error:
            if seen.deployment is None:
                raise  # there is no Deployment to keep
            seen = replace(seen, refusal=error, degraded=refused(error))
            replicas = replicas_of(seen.deployment)
        seen = self._compared(seen, memory)
        self._scaling = pool.spec.scaling
        worths, target = await self._worths_and_target(seen)
        actions = plan(
            seen.pods,
            seen.reading.marks if seen.reading else None,
            target=target,
            replicas=replicas,
            worths=worths,
            now=now,
            scaling=self._scaling,
        )
        await self._executor.execute(actions)
        memory.replicas = replicas_of(self._shared.caches.deployment(self.key))
        decided = await self._remember(seen, memory)
        await self._reporter.acted(item, actions, moves=target > seen.desired)
        started = follow_starts(memory, seen.pods, now)
        await self._report_to_routers(seen, memory, decided=decided)
        await self._reporter.status(seen, memory)
        self._reporter.measure(seen, started, memory)
        return seen

    async def _hold_size(self, now: float) -> None:
        """Keep the size of a pool whose spec is invalid. Pods still join, drain and end."""
        reading = await self._read()
        pods = self._pods(reading, now)
        replicas = replicas_of(self._shared.caches.deployment(self.key))
        actions = plan(
            pods,
            reading.marks if reading else None,
            target=staying(pods, replicas),
            replicas=replicas,
            worths={},
            now=now,
            scaling=self._scaling,
        )
        await self._executor.execute(actions)

    def _pods(self, reading: Reading | None, now: float) -> list[PodView]:
        requests = reading.requests if reading else {}
        stalled = reading.stalled if reading else frozenset()
        marks = marks_of(self._shared.caches.deployment(self.key))
        views = [
            pod_view(
                pod,
                requests.get(name),
                marks,
                heard=name in reading.heard if reading else None,
                stalled=name in stalled,
                troubled=keeps_from_starting(pod),
                cordoned=self._shared.caches.is_cordoned(pod),
            )
            for pod in self._shared.caches.pods(self.key)
            for name in (pod["metadata"]["name"],)
        ]
        return self._sightings.dated(views, now)

    async def _observe(
        self, item: Object, pool: WorkerPool, memory: Memory, now: float
    ) -> Observation:
        reading = await self._read()
        pods = self._pods(reading, now)
        pods, adapters = self._adapters.follow(pool, pods, reading, memory, now)
        counts = census(pods, now, late_after_s(learned_start_s(memory.starts)))
        deployment = self._shared.caches.deployment(self.key)
        # A deleted Deployment is recreated with the decided size.
        size = memory.desired or 0
        current = staying(pods, replicas_of(deployment), size) if deployment else size
        scaling = pool.spec.scaling
        if scaling.mode is Mode.AUTO:
            follow_replaced(memory, current, replicas_of(deployment), now)
        decision = decided(scaling, memory.history, current, counts, reading, memory.starts, now)
        memory.history = decision.history
        follow_shadows(pool, memory, current, counts, reading, now)
        follow_traffic(memory, pool, reading, now)
        if scaling.mode is Mode.AUTO:
            wanted, reason = decision.desired, decision.reason
        else:
            wanted = pool.spec.replicas
            reason = f"spec.replicas is {wanted}"
        held = HeldGpus.of(pods, replicas_of(deployment), now)
        gpus = self._shared.gpus.grant(self.key, pool, wanted, held)
        return Observation(
            item=item,
            pool=pool,
            pods=pods,
            census=counts,
            deployment=deployment,
            reading=reading,
            decision=decision,
            desired=gpus.replicas,
            reason=f"{reason}; {gpus.reason}" if gpus.reason else reason,
            gpus=gpus,
            degraded=degraded(
                deployment,
                self._shared.caches.pods(self.key),
                [pod.name for pod in pods if pod.stalled],
                [pod.name for pod in silent(pods, now)],
                now,
            ),
            adapters=adapters,
            refusal=None,
            now=now,
        )

    def _compared(self, seen: Observation, memory: Memory) -> Observation:
        """What was seen, compared with the Deployment as it is now: the pods of one that has just
        got another template are outdated, and no status may say that they are what the new spec
        wants."""
        deployment = self._shared.caches.deployment(self.key)
        if deployment is seen.deployment:
            return seen
        outdated = {pod.uid: pod.outdated for pod in self._pods(seen.reading, seen.now)}
        pods = [replace(pod, outdated=outdated.get(pod.uid, pod.outdated)) for pod in seen.pods]
        counts = census(pods, seen.now, late_after_s(learned_start_s(memory.starts)))
        return replace(seen, deployment=deployment, pods=pods, census=counts)

    async def _report_to_routers(self, seen: Observation, memory: Memory, *, decided: bool) -> None:
        if seen.reading is None:
            self._reporter.forget_rows()
            return
        try:
            await self._reporter.rows(seen, memory, decided=decided)
        except FleetError as error:
            self._reporter.forget_rows()
            self._log(f"Redis: {error}")

    async def _read(self) -> Reading | None:
        try:
            reading = await self._reader.read()
        except (FleetError, TimeoutError) as error:
            self._log(f"Redis: {error or type(error).__name__}")
            self._shared.metrics.redis_up.set(0)
            return None
        self._shared.metrics.redis_up.set(1)
        return reading

    async def _worths_and_target(self, seen: Observation) -> tuple[dict[str, float], int]:
        """Returns the worth of each replica's cache, and the size to plan for.

        The worths are read only if another pod has to be chosen to leave. If they cannot be read,
        the size does not shrink, so no pod is chosen.
        """
        if seen.reading is None:
            return {}, seen.desired
        target = size_to_plan(seen.pods, seen.desired)
        if not target or not is_open(seen.pods, target, replicas_of(seen.deployment)):
            return {}, target
        try:
            return await self._reader.worths(), target
        except (FleetError, TimeoutError) as error:
            self._log(f"Redis: {error or type(error).__name__}")
            return {}, max(target, seen.decision.current)

    async def _remember(self, seen: Observation, memory: Memory) -> bool:
        """Records and reports a change of the desired size; returns whether there was one."""
        before = seen.decision.current if memory.desired is None else memory.desired
        memory.desired = seen.desired
        if seen.desired == before:
            return False
        recorded(memory, seen.decision, before, seen.desired, seen.reason, seen.now)
        if seen.mode is Mode.AUTO:
            by = seen.decision.by
            memory.history = memory.history.scaled(seen.now, before, seen.desired, by)
        await self._reporter.changed(seen.item, before, seen.desired, seen.reason)
        return True

    def _parse(self, item: Object) -> WorkerPool:
        """Raises InvalidPool. Cached, since most reconciles see the same object as the last."""
        if self._parsed is None or self._parsed[0] is not item:
            pool, newer = stored(item)
            self._parsed = item, pool
            if newer != self._newer:
                said = {"pool": str(self.key), "fields": ", ".join(newer)}
                log.warning("fields of a newer CRD are ignored", extra=said)
                self._newer = newer
        return self._parsed[1]

    def _recall(self, pool: WorkerPool) -> Memory:
        """The pool's memory; a pool that was deleted and created again starts without one."""
        if self._memory is None or self._uid != pool.metadata.uid:
            self._memory, self._uid = Memory.of(pool), pool.metadata.uid
        return self._memory

    def _did(self, action: str) -> None:
        self._shared.metrics.actions.labels(self.key.namespace, self.key.name, action).inc()

    def _measure(self, outcome: str, seconds: float) -> None:
        metrics = self._shared.metrics
        metrics.reconciles.labels(self.key.namespace, self.key.name, outcome).inc()
        metrics.reconcile_seconds.observe(seconds)

    def _log(self, failure: str) -> None:
        """Logs a failure once, not at each try."""
        if failure != self._failed:
            log.warning("pool not reconciled", extra={"pool": str(self.key), "error": failure})
        self._failed = failure
