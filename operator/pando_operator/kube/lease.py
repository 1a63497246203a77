"""Leader election by a Lease: who holds it runs, and stops running before it can be another's.

The algorithm is that of Kubernetes's own components (client-go's leaderelection): a candidate takes
a lease that is free, or whose record it has not seen change for the lease's duration, measured by
its own monotonic clock, so clocks of different machines need not agree. The holder renews every
`retry_s`, and when `renew_s` have passed since its last success it cancels what it runs, before the
lease's `duration_s` ends for others. At an orderly end the lease is given back at once.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Conflict, KubeError, NotFound
from pando_operator.kube.resources import LEASES, Key, Object
from pando_operator.kube.terms import Terms

RELEASE_S = 1.0  # for giving back; a lease that is not given back ends by itself

log = logging.getLogger("pando.operator.lease")


class Leader:
    """One candidate. `is_leading` is for people and metrics; what runs is cancelled, not asked."""

    def __init__(
        self,
        kube: Kube,
        key: Key,
        identity: str,
        terms: Terms,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.is_leading = False
        self._kube, self._key, self._identity, self._terms = kube, key, identity, terms
        self._clock, self._now = clock, now
        self._seen: Object = {}  # the lease's spec as last read
        self._seen_at = clock()
        self._is_others = False
        self._renewed_at = 0.0
        self.error = "the lease was not read yet"  # why it cannot be read or written; empty: it can

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease, runs `work` while holding it, and again; until it is cancelled or
        `work` returns or raises. Gives the lease back before it returns."""
        try:
            while True:
                await self._acquire()
                log.info("leading", extra={"identity": self._identity, "lease": str(self._key)})
                if not await self._hold(work):
                    return
                log.warning("leadership is lost", extra={"identity": self._identity})
        finally:
            self.is_leading = False
            await self._release()

    async def _acquire(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._terms.retry_s * random.uniform(1.0, 1.2))

    async def _hold(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether the lease was lost; work has ended then."""
        self.is_leading = True
        running = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((running, renewing), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                return False
            return True
        finally:
            self.is_leading = False
            renewing.cancel()
            running.cancel()
            await asyncio.gather(renewing, running, return_exceptions=True)

    async def _renew(self) -> None:
        """Returns when the lease is lost. A try that hangs leaves time for another one."""
        while True:
            await asyncio.sleep(self._terms.retry_s)
            left = self._renewed_at + self._terms.renew_s - self._clock()
            if left <= 0 or self._is_others:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, self._terms.renew_s / 2)):
                    await self._try()

    async def _try(self) -> bool:
        """Takes or renews the lease where that may be; whether it is ours now."""
        started = self._clock()
        try:
            held = await self._write()
        except Conflict:
            return False  # somebody wrote between our two calls: the next try reads what
        except KubeError as error:
            self._say(str(error))
            return False
        self._say("")
        self._is_others = not held
        if held:
            self._renewed_at = started
        return held

    async def _write(self) -> bool:
        """False where it is another's."""
        try:
            lease = await self._kube.get(LEASES, self._key)
        except NotFound:
            metadata = {"name": self._key.name, "namespace": self._key.namespace}
            record = self._record("", {"leaseTransitions": -1})
            await self._kube.create(LEASES, {"metadata": metadata, "spec": record})
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if spec != self._seen:
            self._seen, self._seen_at = spec, self._clock()
        lasts = float(spec.get("leaseDurationSeconds") or self._terms.duration_s)
        is_over = self._clock() - self._seen_at > lasts
        if holder not in ("", self._identity) and not is_over:
            return False
        lease["spec"] = spec | self._record(holder, spec)
        written = await self._kube.replace(LEASES, lease)
        self._seen, self._seen_at = written.get("spec") or {}, self._clock()
        return True

    def _record(self, holder: str, spec: Object) -> Object:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        record = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._terms.duration_s)),
            "renewTime": now,
        }
        if holder != self._identity or "acquireTime" not in spec:
            record["acquireTime"] = now
            record["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        return record

    async def _release(self) -> None:
        """Gives the lease back where it is still ours. A write of ours that was cut off has changed
        it, so it is read again."""
        try:
            async with asyncio.timeout(RELEASE_S):
                lease = await self._kube.get(LEASES, self._key)
                if lease.get("spec", {}).get("holderIdentity") != self._identity:
                    return
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace(LEASES, lease)
                log.info("lease given back", extra={"lease": str(self._key)})
        except (KubeError, TimeoutError) as error:
            extra = {"lease": str(self._key), "error": str(error)}
            log.warning("lease not given back, ends by itself", extra=extra)

    def _say(self, error: str) -> None:
        if error and error != self.error:
            log.warning("lease cannot be read or written", extra={"error": error})
        self.error = error
