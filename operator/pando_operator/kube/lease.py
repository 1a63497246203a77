"""Leader election by a Lease: its holder works, and stops before anyone else can take the Lease.

The algorithm is that of Kubernetes' own components (client-go's leaderelection). A candidate takes
a lease that is free, or whose record has not changed for the lease's duration by the candidate's
own monotonic clock, so the clocks of different machines need not agree. The holder renews every
`retry_s`. It cancels its work once `renew_s` have passed since its last success, which is before
`duration_s` ends for the others. At an orderly end it releases the lease at once.
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

RELEASE_S = 1.0  # time for the release; a lease that is not released expires

log = logging.getLogger("pando.operator.lease")


class Leader:
    """One candidate. `is_leading` is for health and metrics; lost leadership cancels the work."""

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
        self.error = "the lease has not been read yet"  # why it cannot be read or written, or ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease and run `work` while holding it; again after losing it. Ends when it
        is cancelled, or when `work` returns or raises, and then releases the lease."""
        try:
            while True:
                await self._acquire()
                log.info("leading", extra={"identity": self._identity, "lease": str(self._key)})
                if not await self._hold(work):
                    return
                log.warning("leadership lost", extra={"identity": self._identity})
        finally:
            self.is_leading = False
            await self._release()

    async def _acquire(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._terms.retry_s * random.uniform(1.0, 1.2))

    async def _hold(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run `work` while holding the lease; returns True if it lost the lease, else False."""
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
        """Renew until the lease is lost. Each try is short enough to leave time for another one."""
        while True:
            await asyncio.sleep(self._terms.retry_s)
            left = self._renewed_at + self._terms.renew_s - self._clock()
            if left <= 0 or self._is_others:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, self._terms.renew_s / 2)):
                    await self._try()

    async def _try(self) -> bool:
        """Take or renew the lease if possible; returns whether we hold it now."""
        started = self._clock()
        try:
            held = await self._write()
        except Conflict:
            return False  # another operator wrote between our two calls; the next try reads it
        except KubeError as error:
            self._set_error(str(error))
            return False
        self._set_error("")
        self._is_others = not held
        if held:
            self._renewed_at = started
        return held

    async def _write(self) -> bool:
        """Write our record; returns False if another candidate holds the lease."""
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
        """Release the lease if we still hold it. Reads it first, since a write of ours that was
        cut off may have changed it."""
        try:
            async with asyncio.timeout(RELEASE_S):
                lease = await self._kube.get(LEASES, self._key)
                if lease.get("spec", {}).get("holderIdentity") != self._identity:
                    return
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace(LEASES, lease)
                log.info("lease released", extra={"lease": str(self._key)})
        except (KubeError, TimeoutError) as error:
            extra = {"lease": str(self._key), "error": str(error)}
            log.warning("lease not released, it will expire", extra=extra)

    def _set_error(self, error: str) -> None:
        if error and error != self.error:
            log.warning("lease cannot be read or written", extra={"error": error})
        self.error = error
