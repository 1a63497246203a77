"""The order of waiting requests: fair to tenants, and free of starvation.

Three rules; the first that decides wins:

1. Every OLDEST_TURN-th place goes to the request that has waited longest, whatever its tenant.
2. Tenants of a higher rank (set by the operator) go first.
3. Tenants of equal rank share places by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM
   1996), in proportion to their weights and counted in estimated tokens. Within a tenant, requests
   go by priority (set by the client), then sessions that return before others, then by arrival.

So a client's priority never takes a place from another tenant, and rule 1 bounds overtaking: a
request that arrives behind k others leaves after at most OLDEST_TURN * (k + 1) places. No clock, no
I/O. The state is the waiting requests and one number per tenant served in this busy period.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

OLDEST_TURN = 16

MAX_DEBTS = 1024
"""For how many tenants of one rank without waiting requests the virtual time is kept."""

T = TypeVar("T")


@dataclass(slots=True, eq=False, kw_only=True)
class Entry(Generic[T]):
    """One waiting request. The queue sets `number`, its order of arrival."""

    item: T
    tenant: str
    weight: float = 1.0
    rank: int = 0  # of the tenant, higher first
    priority: int = 0  # among the tenant's own, smaller first
    cost: float = 1.0  # estimated tokens
    body_bytes: int = 0
    is_back: bool = False  # its session was here before
    number: int = 0
    since: float = 0.0  # when it entered, by the queue's clock

    @property
    def order(self) -> tuple[int, bool, int]:
        return self.priority, not self.is_back, self.number


@dataclass(slots=True, eq=False)
class _Flow(Generic[T]):
    """A tenant's waiting requests in order, at least one; `tag` is its virtual start time."""

    tenant: str
    tag: float
    number: int  # order of activation, which decides between equal tags
    entries: list[Entry[T]] = field(default_factory=list)

    @property
    def order(self) -> tuple[float, int]:
        return self.tag, self.number


@dataclass(slots=True, eq=False)
class _Rank(Generic[T]):
    """The flows of equally ranked tenants during a busy period, while one has waiting requests."""

    rank: int
    virtual_time: float = 0.0
    flows: dict[str, _Flow[T]] = field(default_factory=dict)
    ordered: list[_Flow[T]] = field(default_factory=list)
    debts: dict[str, float] = field(default_factory=dict)  # tags of tenants with none waiting

    def owe(self, tenant: str, tag: float) -> None:
        """Keeps the tag of a tenant without waiting requests if it is ahead of virtual time."""
        if tag <= self.virtual_time:
            return
        self.debts[tenant] = tag
        if len(self.debts) > MAX_DEBTS:
            ahead = {name: tag for name, tag in self.debts.items() if tag > self.virtual_time}
            most = sorted(ahead, key=lambda name: -ahead[name])[: MAX_DEBTS // 2]
            self.debts = {name: ahead[name] for name in most}


class FairQueue(Generic[T]):
    """`add` a request, `take` the `head` for each place, `remove` one that leaves without."""

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
        """The entry that gets the next place; it changes only by `add`, `take` and `remove`."""
        if not self._arrivals:
            return None
        if (self._taken + 1) % OLDEST_TURN == 0:
            return self.oldest()
        return self._ranks[0].ordered[0].entries[0]

    def oldest(self) -> Entry[T] | None:
        """The entry that has waited longest."""
        return next(iter(self._arrivals.values()), None)

    def take(self, entry: Entry[T]) -> None:
        """Removes an entry that got a place, and charges its tenant."""
        self._taken += 1
        rank = self._rank(entry.rank)
        flow = rank.flows[entry.tenant]
        rank.ordered.pop(bisect_left(rank.ordered, flow.order, key=lambda flow: flow.order))
        # When the oldest request goes out of turn, virtual time must not overtake the other flows.
        if not rank.ordered or flow.order < rank.ordered[0].order:
            rank.virtual_time = flow.tag
        flow.tag += entry.cost / entry.weight
        insort(rank.ordered, flow, key=lambda flow: flow.order)
        self.remove(entry)

    def remove(self, entry: Entry[T]) -> None:
        """Removes an entry without a place. Raises KeyError if it is not in the queue."""
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

    def victim(self, newcomer: Entry[T]) -> Entry[T] | None:
        """The entry to drop from a full queue for `newcomer`; None to refuse the newcomer.

        Drops the last entry of the tenant with most waiting requests relative to its weight, as
        McKenney's stochastic fairness queueing does (INFOCOM 1990), so that no tenant can fill the
        queue. Entries of the lowest rank are dropped first, and a tenant's entries of the largest
        `priority`. Returns None for an empty queue.
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
        if own is not None and own.entries[-1].priority > newcomer.priority:
            return own.entries[-1]
        return None

    def _rank(self, number: int) -> _Rank[T]:
        at = bisect_left(self._ranks, -number, key=lambda rank: -rank.rank)
        if at == len(self._ranks) or self._ranks[at].rank != number:
            self._ranks.insert(at, _Rank(number))
        return self._ranks[at]


def _crowding(flow: _Flow[T]) -> float:
    return len(flow.entries) / flow.entries[0].weight
