"""Active health checks of each ready replica, in addition to its heartbeats.

A heartbeat shows that one thread of a worker is alive. A check takes the same path as requests, so
it detects a replica whose HTTP server hangs despite heartbeats, before requests do. An answer below
500 within the timeout passes, because a replica that does not know the path is alive, too.
Without heartbeats, because the replica is dead or Redis takes no writes, only checks show that it
is alive; they then run each second, whatever the settings. One that had reported a stalled engine
is asked whether it is ready again.
Each replica has one task, which ends when the replica leaves the fleet.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.configuration.live import Live
from pando_router.core.flight import Flights
from pando_router.fleet_view.snapshot import Fleet, Member
from pando_router.health.verdict import Verdict
from pando_router.http.answer import ReplicaFailedError, ReplicaSilentError
from pando_router.http.upstream import Upstream

READY_PATH = "/readyz"  # of a Pando worker; only these report a stalled engine
SILENT_INTERVAL_S = 1.0  # between two checks of a replica without heartbeats
JITTER = 0.1  # of the interval, either way, so that routers do not check at the same moments
MAX_ANSWER_BYTES = 64 * 1024

_CHECKED = (ReplicaState.READY, ReplicaState.DRAINING)

logger = logging.getLogger("pando.router")


_of_checks = attrgetter(
    "health_interval", "health_timeout", "health_path", "unhealthy_after", "healthy_after"
)


@dataclass(slots=True)
class _Watched:
    member: Member  # as last known
    fell_silent: asyncio.Event
    task: "asyncio.Task[None] | None" = None


class HealthChecks:
    """`watch` each new snapshot of the fleet."""

    def __init__(
        self,
        upstream: Upstream,
        live: Live,
        rng: random.Random,
        watch: Callable[[str, "asyncio.Task[None]"], None],
        flights: Flights,
        is_probed: Callable[[str], bool],
    ) -> None:
        """Keeps in `flights` which replicas are unhealthy, have answered, or have recovered.

        Args:
            watch: receives each task, with a description, to report its failure.
            is_probed: whether the replica with this URL is probed elsewhere and needs no checks.
        """
        self._watch = watch
        self._upstream = upstream
        self._live = live
        self._settings = live.settings  # of the running checks
        self._rng = rng
        self._is_probed = is_probed
        self._watched: dict[str, _Watched] = {}
        self._flights = flights

    def watch(self, fleet: Fleet) -> None:
        """Starts checking replicas that became ready, and stops for those that are gone.

        A draining replica is still checked, because it has requests. After a change of the
        settings, all checks start again.
        """
        settings, before = self._live.settings, self._settings
        self._settings = settings
        if _of_checks(settings) != _of_checks(before):
            for incarnation in list(self._watched):
                self._end(incarnation)
        checked = {
            member.beat.incarnation: member
            for members in fleet.pools.values()
            for member in members
            if _is_checked(member) and not self._is_probed(member.beat.url)
        }
        for gone in self._watched.keys() - checked.keys():
            self._end(gone)
        for incarnation, member in checked.items():
            watched = self._watched.get(incarnation)
            if watched is None:
                self._begin(member)
                continue
            if watched.member.beats and not member.beats:
                watched.fell_silent.set()
            watched.member = member

    async def close(self) -> None:
        tasks = [watched.task for watched in self._watched.values() if watched.task]
        for incarnation in list(self._watched):
            self._end(incarnation)
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, member: Member) -> None:
        watched = self._watched[member.beat.incarnation] = _Watched(member, asyncio.Event())
        watched.task = asyncio.create_task(self._run(watched))
        self._watch(f"checking {member.beat.replica}", watched.task)

    def _end(self, incarnation: str) -> None:
        task = self._watched.pop(incarnation).task
        if task is not None:
            task.cancel()
        self._flights.unhealthy.discard(incarnation)
        self._flights.unanswering.discard(incarnation)
        self._flights.recovered.discard(incarnation)

    async def _run(self, watched: _Watched) -> None:
        settings, beat = self._settings, watched.member.beat
        verdict = Verdict(settings.unhealthy_after, settings.healthy_after)
        await self._pause(watched, self._rng.uniform(0, 1))
        while True:
            if watched.member.beat.state is ReplicaState.STALLED:
                if await self._check(beat.url, READY_PATH) is None:
                    self._flights.recovered.add(beat.incarnation)
                    self._flights.answered.add(beat.incarnation)
            else:
                failure = await self._check(beat.url, settings.health_path)
                self._judge(beat, verdict, failure)
            await self._pause(watched, self._rng.uniform(1 - JITTER, 1 + JITTER))

    def _judge(self, beat: Heartbeat, verdict: Verdict, failure: str | None) -> None:
        if failure is None:
            self._flights.answered.add(beat.incarnation)
            self._flights.unanswering.discard(beat.incarnation)
        else:
            self._flights.unanswering.add(beat.incarnation)
        if verdict.count(passed=failure is None):
            extra = {"replica": beat.replica, "url": beat.url, "failure": failure}
            if verdict.healthy:
                self._flights.unhealthy.discard(beat.incarnation)
                logger.info("replica is healthy again", extra=extra)
            else:
                self._flights.unhealthy.add(beat.incarnation)
                logger.warning("replica is unhealthy", extra=extra)

    async def _pause(self, watched: _Watched, share: float) -> None:
        """Waits a share of the check interval, or until the replica's heartbeats stop."""
        interval_s = self._settings.health_interval or inf  # inf: checks are off
        if not watched.member.beats:
            interval_s = min(interval_s, SILENT_INTERVAL_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if interval_s == inf else share * interval_s):
                await watched.fell_silent.wait()
        watched.fell_silent.clear()

    async def _check(self, url: str, path: str) -> str | None:
        """Checks once. Returns what was wrong, or None."""
        try:
            async with asyncio.timeout(self._settings.health_timeout):
                return await self._ask(url, path)
        except TimeoutError:
            return f"no answer within {self._settings.health_timeout:g} s"
        except (ReplicaFailedError, ReplicaSilentError) as error:
            return str(error)

    async def _ask(self, url: str, path: str) -> str | None:
        headers = [(b"user-agent", b"pando-router-health")]
        answer = await self._upstream.request(b"GET", url, path.encode(), headers)
        await answer.whole(MAX_ANSWER_BYTES)
        return None if answer.status < 500 else f"answered {answer.status}"


def _is_checked(member: Member) -> bool:
    state = member.beat.state
    return state in _CHECKED or (state is ReplicaState.STALLED and not member.beats)
