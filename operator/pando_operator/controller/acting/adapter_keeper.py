"""Keeps a pool's adapters on its replicas as the spec says.

Each call to a worker is a task of its own, so the pool's loop never waits for one. The end of a
call wakes the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pando_operator.adapters.calls import (
    LOAD_S,
    Attempt,
    Call,
    CallTarget,
    Load,
    Outcome,
    begun,
)
from pando_operator.adapters.plan import Plan, plan
from pando_operator.adapters.progress import Known
from pando_operator.adapters.replicas import HostReplica
from pando_operator.adapters.report import rows
from pando_operator.controller.memory import Memory
from pando_operator.controller.observing.adapter_hosts import host_replicas
from pando_operator.controller.observing.reading import Reading
from pando_operator.kube.resources import Key
from pando_operator.lifecycle.pods import PodView
from pando_operator.metrics import Metrics
from pando_operator.resource.adapters import Adapter, AdapterStatus
from pando_operator.resource.pool import WorkerPool
from pando_operator.worker_client import WorkerClient, WorkerError

UNLOAD_MARGIN_S = 10.0
"""A worker waits for an adapter's requests as long as a drain may take, and answers after that."""

GONE = "the replica is gone or silent"

log = logging.getLogger("pando.operator")


class AdapterKeeper:
    """The calls of one pool; `close` it when its loop ends."""

    def __init__(
        self,
        workers: WorkerClient,
        metrics: Metrics,
        pool: Key,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._workers, self._metrics, self._pool = workers, metrics, pool
        self._clock, self._wake = clock, wake
        self._attempts: dict[CallTarget, Attempt] = {}
        self._tasks: dict[CallTarget, asyncio.Task[None]] = {}
        self._unload_s = UNLOAD_MARGIN_S

    def follow(
        self,
        pool: WorkerPool,
        pods: Sequence[PodView],
        reading: Reading | None,
        memory: Memory,
        now: float,
    ) -> tuple[list[PodView], tuple[AdapterStatus, ...]]:
        """Begin the calls that are due. Returns the pods, with those marked that have to wait for
        adapters, and each adapter's state."""
        if reading is None:
            return [*pods], pool.status.adapters
        if not pool.spec.adapters and not memory.adapters:
            return [*pods], ()
        self._unload_s = pool.spec.scaling.drain.timeout_seconds + UNLOAD_MARGIN_S
        replicas = host_replicas(pods, reading.replicas, now)
        made = self._begin(pool.spec.adapters, memory.adapters, replicas)
        memory.adapters = made.known
        marked = [replace(pod, lacks_adapters=pod.name in made.waiting) for pod in pods]
        return marked, rows(made)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(
        self,
        adapters: Sequence[Adapter],
        known: Mapping[str, Known],
        replicas: Sequence[HostReplica],
    ) -> Plan:
        self._forget({(one.name, one.incarnation) for one in replicas})
        made = plan(adapters, known, replicas, self._attempts, self._clock())
        for target in made.dropped:
            self._tasks[target].cancel()
            self._ended(target, error=GONE)
        for call in made.calls:
            attempt = begun(self._attempts, call, self._clock())
            self._attempts[call.target] = attempt
            self._tasks[call.target] = asyncio.create_task(self._make(call))
            extra = {"pool": str(self._pool), "action": str(call)}
            log.info("calling a worker", extra=extra)
        return made

    def _forget(self, there: set[tuple[str, str]]) -> None:
        """Forget ended calls to replicas that are gone."""
        self._attempts = {
            target: attempt
            for target, attempt in self._attempts.items()
            if (target.replica, target.incarnation) in there or attempt.outcome is Outcome.RUNNING
        }

    async def _make(self, call: Call) -> None:
        target, identity, error = call.target, "", ""
        try:
            if isinstance(call, Load):
                identity = await self._workers.load(
                    call.url,
                    target.adapter,
                    call.source,
                    pin=call.pin,
                    token=call.token,
                    limit_s=LOAD_S,
                )
            else:
                await self._workers.unload(
                    call.url, target.adapter, token=call.token, limit_s=self._unload_s
                )
        except WorkerError as refused:
            error = str(refused)
        except Exception:
            log.exception("a call failed", extra={"pool": str(self._pool)})
            error = "the operator could not call it: see the operator's log"
        self._ended(target, identity=identity, error=error)
        self._wake()

    def _ended(self, target: CallTarget, *, identity: str = "", error: str = "") -> None:
        del self._tasks[target]
        attempt = self._attempts[target]
        self._attempts[target] = attempt.ended(self._clock(), identity=identity, error=error)
        verb = "load" if isinstance(attempt.call, Load) else "unload"
        outcome = "failed" if error else "ok"
        labels = self._pool.namespace, self._pool.name, verb, outcome
        self._metrics.adapter_calls.labels(*labels).inc()
