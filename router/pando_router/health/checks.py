"""Active health checks: each ready replica is asked for its health, in addition to its heartbeats.

A heartbeat says that one thread of a worker lives; a check goes the way that requests go, so it
finds a replica whose HTTP server hangs while its heartbeat goes on, before requests do. An answer
below 500 within the timeout passes: a replica that does not know the path lives all the same.
One task a replica, which ends when the fleet no longer has the replica.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from pando_fleet.replica import ReplicaState
from pando_router.fleet_view import Fleet, Member
from pando_router.health.verdict import Verdict
from pando_router.http.upstream import ReplicaFailedError, ReplicaSilentError, Upstream
from pando_router.live import Live

JITTER = 0.1  # of the interval, either way: routers shall not ask together
MAX_ANSWER_BYTES = 64 * 1024

logger = logging.getLogger("pando.router")


_of_checks = attrgetter(
    "health_interval", "health_timeout", "health_path", "unhealthy_after", "healthy_after"
)


@dataclass(slots=True)
class _Watched:
    verdict: Verdict
    task: "asyncio.Task[None]"


class HealthChecks:
    """`watch` each new snapshot of the fleet."""

    def __init__(
        self,
        upstream: Upstream,
        live: Live,
        rng: random.Random,
        watch: Callable[[str, "asyncio.Task[None]"], None],
        unhealthy: set[str],
        is_probed: Callable[[str], bool],
    ) -> None:
        """`watch` is given each task with its name in words, to notice where it fails. Keeps in
        `unhealthy` the incarnations to be left out, but for those that somebody else looks after:
        `is_probed` says by URL which these are."""
        self._watch = watch
        self._upstream = upstream
        self._live = live
        self._settings = live.settings  # of the checks under way
        self._rng = rng
        self._is_probed = is_probed
        self._watched: dict[str, _Watched] = {}
        self._unhealthy = unhealthy

    def watch(self, fleet: Fleet) -> None:
        """Begins with replicas that have become ready, and ends with those that are gone. Where the
        settings have changed, all replicas are new."""
        settings, before = self._live.settings, self._settings
        self._settings = settings
        if _of_checks(settings) != _of_checks(before):
            for incarnation, watched in self._watched.items():
                watched.task.cancel()
                self._unhealthy.discard(incarnation)
            self._watched.clear()
        if not settings.health_interval:
            return
        ready = {
            member.beat.incarnation: member
            for members in fleet.pools.values()
            for member in members
            if member.beat.state is ReplicaState.READY and not self._is_probed(member.beat.url)
        }
        for gone in self._watched.keys() - ready.keys():
            self._watched.pop(gone).task.cancel()
            self._unhealthy.discard(gone)
        for incarnation in ready.keys() - self._watched.keys():
            verdict = Verdict(settings.unhealthy_after, settings.healthy_after)
            task = asyncio.create_task(self._run(ready[incarnation], verdict))
            self._watch(f"checking {ready[incarnation].beat.replica}", task)
            self._watched[incarnation] = _Watched(verdict, task)

    async def close(self) -> None:
        tasks = [watched.task for watched in self._watched.values()]
        self._watched.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, member: Member, verdict: Verdict) -> None:
        interval_s, beat = self._settings.health_interval, member.beat
        await asyncio.sleep(self._rng.uniform(0, interval_s))
        while True:
            failure = await self._check(beat.url)
            if verdict.count(passed=failure is None):
                extra = {"replica": beat.replica, "url": beat.url, "failure": failure}
                if verdict.healthy:
                    self._unhealthy.discard(beat.incarnation)
                    logger.info("replica is healthy again", extra=extra)
                else:
                    self._unhealthy.add(beat.incarnation)
                    logger.warning("replica is unhealthy", extra=extra)
            await asyncio.sleep(interval_s * self._rng.uniform(1 - JITTER, 1 + JITTER))

    async def _check(self, url: str) -> str | None:
        """What was wrong, None where nothing was."""
        try:
            async with asyncio.timeout(self._settings.health_timeout):
                return await self._ask(url)
        except TimeoutError:
            return f"no answer within {self._settings.health_timeout:g} s"
        except (ReplicaFailedError, ReplicaSilentError) as error:
            return str(error)

    async def _ask(self, url: str) -> str | None:
        headers = [(b"user-agent", b"pando-router-health")]
        answer = await self._upstream.request(
            b"GET", url, self._settings.health_path.encode(), headers
        )
        await answer.whole(MAX_ANSWER_BYTES)
        return None if answer.status < 500 else f"answered {answer.status}"
