"""A second policy that chooses for a sample of requests and is only measured.

It sees the same members and prompt as the acting policy but never places. Its choice is valued by
the terms that the real placement found for that replica at that moment. It has its own turns and
random generator, and runs during the placement, so requests do not wait for it.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic

from pando_fleet.placement.placer import Placement
from pando_fleet.redis.layout.rows import Candidate
from pando_router.configuration.settings import PolicyName
from pando_router.fleet_view.snapshot import Member
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.route import Prompt
from pando_router.telemetry.metrics import Metrics


class Shadow:
    """Samples at most `per_second` requests, because a placement with all terms costs more."""

    def __init__(
        self, name: PolicyName, policies: PoolPolicies, per_second: float, metrics: Metrics
    ) -> None:
        """`policies` must not be shared with the acting ones."""
        self._name = name
        self._policies = policies
        self._every_s = 1.0 / per_second
        self._next_at = 0.0
        self._metrics = metrics

    def begin(
        self, pool: str, acting: PolicyName, prompt: Prompt, members: Sequence[Member]
    ) -> "Sample | None":
        """Begins a sample of the next placement among `members`; None if none is due."""
        now = monotonic()
        if now < self._next_at:
            return None
        self._next_at = now + self._every_s
        return Sample(self, pool, acting, prompt, members)

    def pick(self, pool: str, prompt: Prompt, members: Sequence[Member]) -> str | None:
        """The picked replica's name; None means the cheapest by the shared placement."""
        member = self._policies.of(pool, self._name).pick(prompt, members)
        return member.beat.replica if member else None

    def count(self, pool: str, acting: PolicyName, chosen: Candidate, shadow: Candidate) -> None:
        metrics = self._metrics
        agrees = "true" if chosen.replica == shadow.replica else "false"
        metrics.shadow_requests.labels(pool, acting, self._name, agrees).inc()
        for role, candidate in (("acting", chosen), ("shadow", shadow)):
            time_s = candidate.wait_s + candidate.kv_wait_s + candidate.work_s
            metrics.shadow_hit_tokens.labels(pool, role).inc(candidate.matched_tokens)
            metrics.shadow_seconds.labels(pool, role).inc(time_s)


class Sample:
    """One request for which the shadow policy chooses; `placed` ends it."""

    def __init__(
        self,
        shadow: Shadow,
        pool: str,
        acting: PolicyName,
        prompt: Prompt,
        members: Sequence[Member],
    ) -> None:
        self._shadow = shadow
        self._pool = pool
        self._acting = acting
        self._prompt = prompt
        self._members = members
        self._picked: str | None = None
        asyncio.get_running_loop().call_soon(self._pick)  # during the placement

    def _pick(self) -> None:
        self._picked = self._shadow.pick(self._pool, self._prompt, self._members)

    def placed(self, placement: Placement) -> None:
        asyncio.get_running_loop().call_soon(self._compare, placement)

    def _compare(self, placement: Placement) -> None:
        by_name = {candidate.replica: candidate for candidate in placement.candidates}
        if self._picked is None:
            shadow = placement.candidates[0]
        elif self._picked in by_name:
            shadow = by_name[self._picked]
        else:  # Redis no longer counts it as ready
            return
        if shadow.full:  # the request would have waited for an unknown time
            return
        self._shadow.count(self._pool, self._acting, placement.chosen, shadow)
