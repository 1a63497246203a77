"""Who is next: an order over waiting requests that is fair to tenants and forgets nobody.

Three rules, the first that decides wins:

1. Every OLDEST_TURN-th place goes to the request that has waited longest, whoever sent it.
2. Tenants of a higher rank (the operator's word) go first.
3. Among tenants of one rank, start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): places
   are shared in the proportion of the tenants' weights, counted in estimated tokens. Within a
   tenant the higher priority (the client's word) goes first, then who came first.

So a client's priority never takes a place from another tenant, and rule 1 bounds overtaking:
a request that found k others waiting is out after at most OLDEST_TURN * (k + 1) places. Pure: no
clock, no I/O. State is the waiting requests and, per tenant served in this busy period, one number.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

OLDEST_TURN = 16

MAX_DEBTS = 1024
"""Tenants of one rank without a waiting request whose virtual time is remembered."""

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class Entry(Generic[T]):
    """One waiting request. `number`, its order of arrival, is given by the queue."""

    what: T
    tenant: str
    weight: float = 1.0
    rank: int = 0  # of the tenant, higher first
    priority: int = 0  # among the tenant's own, higher first
    cost: float = 1.0  # estimated tokens
    body_bytes: int = 0
    number: int = 0
    since: float = 0.0  # when it entered, by the clock of its line

    @property
    def order(self) -> tuple[int, int]:
        return -self.priority, self.number


@dataclass(slots=True, eq=False)
class _Flow(Generic[T]):
    """A tenant's waiting requests in their order, at least one; `tag` is its virtual start time."""

    tenant: str
    tag: float
    number: int  # order of activation: decides between equal tags
    entries: list[Entry[T]] = field(default_factory=list)

    @property
    def order(self) -> tuple[float, int]:
        return self.tag, self.number


@dataclass(slots=True, eq=False)
class _Rank(Generic[T]):
    """Flows of equally ranked tenants. It lives as long as one of them waits: a busy period."""

    rank: int
    virtual_time: float = 0.0
    flows: dict[str, _Flow[T]] = field(default_factory=dict)
    ordered: list[_Flow[T]] = field(default_factory=list)
    debts: dict[str, float] = field(default_factory=dict)  # tags of tenants that do not wait now

    def owe(self, tenant: str, tag: float) -> None:
        """Remembers what a tenant without waiting requests has had, where it was ahead."""
        if tag <= self.virtual_time:
            return
        self.debts[tenant] = tag
        if len(self.debts) > MAX_DEBTS:
            ahead = {name: tag for name, tag in self.debts.items() if tag > self.virtual_time}
            most = sorted(ahead, key=lambda name: -ahead[name])[: MAX_DEBTS // 2]
            self.debts = {name: ahead[name] for name in most}


class FairQueue(Generic[T]):
    """`add`, then `head` and `take` for each place; `remove` for who leaves without one."""

    def __init__(self) -> None:
        self._arrivals: OrderedDict[int, Entry[T]] = OrderedDict()
        self._ranks: list[_Rank[T]] = []  # highest first
        self._next_number = 0
        self._taken = 0

    def __len__(self) -> int:
        return len(self._arrivals)

    def __contains__(self, entry: Entry[T]) -> bool:
        return self._arrivals.get(entry.number) is entry

    def add(self, entry: Entry[T]) -> None:
        entry.number = self._next_number
        self._next_number += 1
        self._arrivals[entry.number] = entry
        rank = self._rank(entry.rank)
        flow = rank.flows.get(entry.tenant)
        if flow is None:
            tag = max(rank.virtual_time, rank.debts.pop(entry.tenant, 0.0))
            flow = _Flow(entry.tenant, tag, entry.number)
            rank.flows[entry.tenant] = flow
            insort(rank.ordered, flow, key=lambda flow: flow.order)
        insort(flow.entries, entry, key=lambda entry: entry.order)

    def head(self) -> Entry[T] | None:
        """Who gets the next place; the same one until something is added, taken or removed."""
        if not self._arrivals:
            return None
        if (self._taken + 1) % OLDEST_TURN == 0:
            return self.oldest()
        return self._ranks[0].ordered[0].entries[0]

    def oldest(self) -> Entry[T] | None:
        """Who has waited longest."""
        return next(iter(self._arrivals.values()), None)

    def take(self, entry: Entry[T]) -> None:
        """The entry leaves with a place, which its tenant is charged for."""
        self._taken += 1
        rank = self._rank(entry.rank)
        flow = rank.flows[entry.tenant]
        rank.ordered.pop(bisect_left(rank.ordered, flow.order, key=lambda flow: flow.order))
        # Out of turn, virtual time stays with those that are behind.
        if not rank.ordered or flow.order < rank.ordered[0].order:
            rank.virtual_time = flow.tag
        flow.tag += entry.cost / entry.weight
        insort(rank.ordered, flow, key=lambda flow: flow.order)
        self.remove(entry)

    def remove(self, entry: Entry[T]) -> None:
        """The entry leaves without a place. Raises KeyError where it is not here."""
        del self._arrivals[entry.number]
        rank = self._rank(entry.rank)
        flow = rank.flows[entry.tenant]
        flow.entries.pop(bisect_left(flow.entries, entry.order, key=lambda entry: entry.order))
        if flow.entries:
            return
        del rank.flows[flow.tenant]
        rank.ordered.pop(bisect_left(rank.ordered, flow.order, key=lambda flow: flow.order))
        if rank.flows:
            rank.owe(flow.tenant, flow.tag)
        else:
            self._ranks.remove(rank)

    def gives_way(self, newcomer: Entry[T]) -> Entry[T] | None:
        """Who should leave a full queue for `newcomer`, None where the newcomer should, as where
        nobody waits.

        The last of the tenant that has most requests waiting for its weight, as in McKenney's
        stochastic fairness queueing (INFOCOM 1990), so that nobody can fill the queue for all.
        Lower ranks give way first; among a tenant's own the lowest priority.
        """
        if not self._ranks:
            return None
        lowest = self._ranks[-1]
        if newcomer.rank < lowest.rank:
            return None
        if newcomer.rank > lowest.rank:
            return max(lowest.flows.values(), key=_crowding).entries[-1]
        own = lowest.flows.get(newcomer.tenant)
        own_crowding = ((len(own.entries) if own else 0) + 1) / newcomer.weight
        crowd = max(lowest.flows.values(), key=_crowding)
        if crowd is not own and _crowding(crowd) > own_crowding:
            return crowd.entries[-1]
        if own is not None and own.entries[-1].priority < newcomer.priority:
            return own.entries[-1]
        return None

    def _rank(self, number: int) -> _Rank[T]:
        at = bisect_left(self._ranks, -number, key=lambda rank: -rank.rank)
        if at == len(self._ranks) or self._ranks[at].rank != number:
            self._ranks.insert(at, _Rank(number))
        return self._ranks[at]


def _crowding(flow: _Flow[T]) -> float:
    return len(flow.entries) / flow.entries[0].weight
