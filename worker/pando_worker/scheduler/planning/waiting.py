"""`WaitingQueue`: the waiting requests, in the order in which they are considered for admission.

The policy's order holds for any length of the queue, and nothing here is done anew in each step:
orders and matches are kept up by what changes. Three things stand above the policy:

- A request that too many later ones have overtaken goes first, in order of arrival.
- A request whose LoRA adapter is not in device memory is left out until it is: see
  `ServedAdapters`. Those behind it pass.
- A request that would compute what another one is computing is parked: it is left out until that
  part is computed, or nobody computes it any more. Those behind it pass meanwhile; it goes on as
  soon as it would have if nobody had.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from itertools import chain, islice, takewhile

from sortedcontainers import SortedDict, SortedList

from pando_worker.policies.schedule.order import Clock, Order, SchedulePolicy
from pando_worker.scheduler.adapters.adapter import Need
from pando_worker.scheduler.adapters.served import ServedAdapters
from pando_worker.scheduler.pages.kv_manager import KVManager
from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.new_token_ratio import still_allowed
from pando_worker.scheduler.planning.sharing import Computing, Key
from pando_worker.scheduler.req import Req

# How many requests are looked at in a step: for one that may pass, of which more than one only if
# priorities differ; and for what they can continue from.
_LOOKED_AT = 64


class Verdict(Enum):
    """What came of an attempt to admit a request."""

    ADMITTED = auto()
    NOT_NOW = auto()  # others may be admitted
    NO_SLOT = auto()  # its adapter is not in device memory; others may be admitted
    FULL = auto()  # nobody else is admitted in this step


Attempt = Callable[[Req], Verdict]


class WaitingQueue:
    """
    Attributes:
        version: grows with every change
        prompt_tokens: of all requests and their sources, to compute, as of when each was queued
        output_tokens: of all requests, `still_allowed`
    """

    def __init__(
        self,
        policy: SchedulePolicy,
        kv: KVManager,
        max_passed_over: int,
        clock: Clock,
        adapters: ServedAdapters | None = None,
    ) -> None:
        """
        Args:
            max_passed_over: how many later requests may overtake one in the policy's order.
        """
        self.matches = Matches(kv.cache, self._changed)
        self._kv = kv
        self.version = 0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self._order: Order[Req] = policy.make(self.matches, clock)
        self._by_priority = policy.by_priority
        self._max_passed_over = max_passed_over
        self._reqs: SortedDict[int, Req] = SortedDict()  # by arrival
        self._by_work: SortedDict[tuple[int, int, int], Req] = SortedDict()
        self._work_keys: dict[Req, tuple[int, int, int]] = {}
        self._adapters = adapters
        self._slotless: dict[bytes, SortedDict[int, Req]] = {}  # by adapter, by arrival
        self._by_adapter: dict[bytes, int] = {}  # how many requests of each adapter
        self._line: list[Need] = []
        self._line_of = -1  # the version that it was made of
        self._parked: dict[Key, dict[Req, None]] = {}
        self._parked_at: dict[Req, Key] = {}
        # Arrivals of requests admitted in the policy's order, those after the oldest waiting one.
        self._admitted: SortedList[int] = SortedList()
        self._retracted = 0
        # Requests whose match changes while an order is iterated: they move afterwards.
        self._late: dict[Req, None] | None = None

    def __len__(self) -> int:
        return len(self._reqs)

    def __contains__(self, req: Req) -> bool:
        return self._reqs.get(req.arrival) is req

    def __iter__(self) -> Iterator[Req]:
        """By arrival."""
        return iter(self._reqs.values())

    def append(self, req: Req) -> None:
        self._add(req, req.arrival)

    def append_retracted(self, req: Req) -> None:
        """Add a request that was admitted before; it goes first among its equals."""
        self._retracted += 1
        self._add(req, -self._retracted)

    def remove(self, req: Req) -> None:
        self.version += 1
        self.prompt_tokens -= req.work_when_queued
        self.output_tokens -= still_allowed(req)
        del self._reqs[req.arrival]
        if self._is_slotless(req):
            self._take_slotless(req)
        else:
            self._leave_order(req)
        self.matches.discard(req)
        if req.adapter:
            self._by_adapter[req.adapter] -= 1
            if not self._by_adapter[req.adapter]:
                del self._by_adapter[req.adapter]

    # Adapters

    @property
    def line(self) -> list[Need]:
        """The adapters that requests need and that are not open, in the order in which they get
        slots: those that starve first, then by priority, then by arrival."""
        if not self._slotless:
            return []
        if self._line_of != self.version:
            self._line, self._line_of = self._lined_up(), self.version
        return self._line

    def _lined_up(self) -> list[Need]:
        needs: list[tuple[bool, int, int, bytes]] = []
        for identity, reqs in self._slotless.items():
            arrival, oldest = reqs.peekitem(0)
            first = min(req.priority for req in reqs.values()) if self._by_priority else 0
            needs.append((not self._is_starving(oldest), first, arrival, identity))
        return [Need(identity, not is_fed) for is_fed, _, _, identity in sorted(needs)]

    @property
    def num_slotless(self) -> int:
        return sum(map(len, self._slotless.values()))

    def awaits(self, identity: bytes) -> bool:
        """Whether a waiting request has this adapter."""
        return identity in self._by_adapter

    def lacks_slot(self, req: Req) -> bool:
        if not req.adapter or req.slot >= 0:
            return False
        return self._adapters is None or not self._adapters.is_open(req.adapter)

    def opened(self, identity: bytes) -> None:
        """An adapter is open: its requests take their places in the order."""
        self.version += 1
        for req in self.slotless(identity):
            self._take_slotless(req)
            self._enter_order(req)

    def slotless(self, identity: bytes) -> list[Req]:
        """The requests that wait for this adapter to open."""
        return list(self._slotless.get(identity, {}).values())

    def _is_slotless(self, req: Req) -> bool:
        return bool(req.adapter) and req.arrival in self._slotless.get(req.adapter, ())

    def _put_slotless(self, req: Req) -> None:
        self._slotless.setdefault(req.adapter, SortedDict())[req.arrival] = req

    def _take_slotless(self, req: Req) -> None:
        reqs = self._slotless[req.adapter]
        del reqs[req.arrival]
        if not reqs:
            del self._slotless[req.adapter]

    # Admission

    def passed_over(self, req: Req) -> int:
        """How many later requests were admitted before a waiting one."""
        return len(self._admitted) - self._admitted.bisect_right(req.arrival)

    def admit(self, computing: Computing, attempt: Attempt) -> None:
        """Attempt to admit requests in the policy's order; removes the admitted."""
        starving = list(takewhile(self._is_starving, self))
        admitted = self._admit(lambda: chain(starving, self._order), computing, attempt)
        if admitted:
            self._admitted.update([req.arrival for req in admitted])
            oldest = self._reqs.keys()[0] if self._reqs else self._admitted[-1]
            del self._admitted[: self._admitted.bisect_right(oldest)]

    def admit_shortest(self, computing: Computing, attempt: Attempt) -> None:
        """Like `admit`, but those with the least to compute first. This does not count as being
        passed over: what they take belongs to them, see `PromptBudget`."""
        self._admit(lambda: islice(self._by_work.values(), _LOOKED_AT), computing, attempt)

    @property
    def shortest(self) -> float:
        """The fewest tokens that one of the requests has to compute; infinite if there is none."""
        if self._by_priority:
            return min((work for _, work, _ in self._by_work), default=math.inf)
        return next((work for _, work, _ in self._by_work), math.inf)

    def work(self, req: Req) -> int:
        """Tokens that a waiting request has to compute."""
        return req.num_tokens - self.matches.hit(req)

    def _admit(
        self, order: Callable[[], Iterable[Req]], computing: Computing, attempt: Attempt
    ) -> list[Req]:
        for gone in [key for key in self._parked if key not in computing]:
            for req in list(self._parked[gone]):
                self._unpark(req)
        admitted: list[Req] = []
        sharing: list[tuple[Req, Key]] = []
        slotless: list[Req] = []
        self._late = {}
        for req in self._looked_at(order):
            if req in self._parked_at or self._is_slotless(req):
                continue
            if key := computing.shared_key(req):
                sharing.append((req, key))
                continue
            verdict = attempt(req)
            if verdict is Verdict.ADMITTED:
                admitted.append(req)
            elif verdict is Verdict.NO_SLOT:
                slotless.append(req)
            elif verdict is Verdict.FULL:
                break
        late, self._late = self._late, None
        for req, key in sharing:
            self._park(req, key)
        for req in slotless:
            self.version += 1
            self._leave_order(req)
            self._put_slotless(req)
        for req in admitted:
            self.remove(req)
        for req in late:
            if req in self:
                self._changed(req)
        return admitted

    def _looked_at(self, order: Callable[[], Iterable[Req]]) -> Iterator[Req]:
        """The requests of an order, each once.

        A request may be unable to continue from all that is cached of its prompt: window pages are
        missing, pages that only the host has are not worth a copy, or it would cut an image that
        must run whole. That changes without a change of the tree, so it is found out when the
        request's turn comes, and the order begins anew if the request had a wrong place in it.
        """
        are_whole = self._kv.prefixes.are_whole
        seen: set[Req] = set()
        checked: set[Req] = set()
        is_right = False
        while not is_right:
            is_right = True
            for req in order():
                if req in seen:
                    continue
                may_differ = (not are_whole or req.images) and req in self._work_keys
                may_differ = may_differ and req not in self._parked_at
                if may_differ and len(checked) < _LOOKED_AT and req not in checked:
                    checked.add(req)
                    if self.matches.correct(req, self._kv.usable(req)):
                        self._reorder(req)
                        is_right = False
                        break
                seen.add(req)
                yield req

    def _is_starving(self, req: Req) -> bool:
        return self.passed_over(req) > self._max_passed_over

    def _add(self, req: Req, place: int) -> None:
        self.version += 1
        req.place = place
        self.prompt_tokens += req.work_when_queued
        self.output_tokens += still_allowed(req)
        self._reqs[req.arrival] = req
        self.matches.add(req)
        if req.adapter:
            self._by_adapter[req.adapter] = self._by_adapter.get(req.adapter, 0) + 1
        if self.lacks_slot(req):
            self._put_slotless(req)
        else:
            self._enter_order(req)

    def _enter_order(self, req: Req) -> None:
        self._order.add(req)
        self._put_by_work(req)

    def _leave_order(self, req: Req) -> None:
        del self._by_work[self._work_keys.pop(req)]
        if req in self._parked_at:
            self._unpark(req)
        self._order.discard(req)

    def _changed(self, req: Req) -> None:
        """More or less of a request's prompt is cached now."""
        if self._late is not None:
            self._late[req] = None
        else:
            self._reorder(req)

    def _reorder(self, req: Req) -> None:
        self.version += 1
        if self._is_slotless(req):
            return
        del self._by_work[self._work_keys[req]]
        self._put_by_work(req)
        if req in self._parked_at:
            self._unpark(req)
        self._order.changed(req)

    def _put_by_work(self, req: Req) -> None:
        key = (req.priority if self._by_priority else 0, self.work(req), req.place)
        self._work_keys[req] = key
        self._by_work[key] = req

    def _park(self, req: Req, key: Key) -> None:
        self._order.discard(req)
        self._parked.setdefault(key, {})[req] = None
        self._parked_at[req] = key

    def _unpark(self, req: Req) -> None:
        key = self._parked_at.pop(req)
        del self._parked[key][req]
        if not self._parked[key]:
            del self._parked[key]
        self._order.add(req)
