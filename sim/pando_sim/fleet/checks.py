"""Invariants of every run, whatever the policy; a violation ends the run, whose results would be
wrong."""

from collections import Counter

from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_sim.fleet.fleet import Fleet
from pando_sim.records import Outcome, Served
from pando_sim.request import Request
from pando_sim.worker.replica import Replica


class Violation(Exception):  # noqa: N818  (a state of the run)
    """The simulation has lost or duplicated something, so its numbers would be wrong."""


class Checks:
    """Counts how often each invariant was checked."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._open: dict[int, Request] = {}  # arrived, but have not ended
        self._finished_tokens = 0

    def came(self, request: Request) -> None:
        self._open[request.number] = request

    def ended(self, served: Served) -> Request:
        """No request is served twice, and a finished one has all of its tokens.

        Returns the request that arrived.
        """
        self.counts["requests end once"] += 1
        request = self._open.pop(served.number, None)
        if request is None:
            raise Violation(f"request {served.number} has ended twice, or never came")
        if served.outcome is Outcome.FINISHED:
            self.counts["tokens of finished requests"] += 1
            if served.output_tokens != request.output_tokens:
                raise Violation(
                    f"request {served.number} has {served.output_tokens} tokens, expected"
                    f" {request.output_tokens}"
                )
            # a lost request is placed again, maybe after its first token
            placed_s = served.placed_s if served.tries == 1 else served.arrival_s
            if not served.arrival_s <= placed_s < served.first_token_s <= served.end_s:
                raise Violation(f"request {served.number} has times out of order: {served}")
        self._finished_tokens += served.output_tokens
        return request

    def pool(self, replica: Replica) -> None:
        """Each page has one owner: the free list, the cache, or a request."""
        self.counts["pools add up"] += 1
        kv, queues = replica.scheduler.kv, replica.scheduler.planner
        admitted = (*queues.prefilling, *queues.running)
        own = sum(req.num_pages - kv.tree_pages(req) for req in admitted)
        cache = kv.cache.evictable_pages + kv.cache.protected_pages
        found = kv.allocator.num_free + cache + own
        if found != kv.allocator.num_pages:
            raise Violation(
                f"{replica.name} has {kv.allocator.num_pages} pages, and {found} of them are free,"
                " cached or a request's"
            )

    def idle(self, replica: Replica) -> None:
        """At the end nothing is held, and the cache's counts match its tree."""
        self.counts["idle pools are free or cached"] += 1
        if not replica.scheduler.is_idle:
            raise Violation(f"{replica.name} is not idle at the end")
        replica.scheduler.kv.check_idle()
        self.pool(replica)
        self._tree(replica)

    def _tree(self, replica: Replica) -> None:
        self.counts["caches hold what they count"] += 1
        kv = replica.scheduler.kv
        pages = sum(len(node.pages) for node in kv.cache.nodes() if node.pages is not None)
        if pages != kv.cache.evictable_pages + kv.cache.protected_pages:
            raise Violation(f"{replica.name}'s cache holds {pages} pages, but counts others")

    def tokens(self, fleet: Fleet, prefills: int) -> None:
        """Replicas produced exactly the tokens that requests got, plus one per prefill for a mark,
        unless some were lost on the way."""
        self.counts["output tokens are conserved"] += 1
        made = fleet.gone_output_tokens + sum(
            replica.scheduler.meter.counts.output_tokens_total
            for replica in fleet.replicas.values()
        )
        got = self._finished_tokens + prefills
        if made < got or (made > got and not fleet.has_lost_requests):
            raise Violation(f"replicas made {made} tokens, requests and prefills got {got}")

    def all_ended(self) -> None:
        self.counts["no request is lost"] += 1
        if self._open:
            some = list(self._open)[:5]
            raise Violation(f"{len(self._open)} requests arrived and never ended, such as {some}")

    async def leases(self, redis: RedisClient, pool: str) -> None:
        """Every reservation has been released."""
        self.counts["leases are given back"] += 1
        keys = PoolKeys(pool)
        leases, parts, loads = keys.leases
        left = await redis.zcard(leases), await redis.hlen(parts), await redis.hlen(loads)
        if any(left):
            raise Violation(f"leases, their parts and loads are left at the end: {left}")
