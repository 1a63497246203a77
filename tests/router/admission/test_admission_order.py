"""The order of the fair queue, compared with a brute-force model, and its guarantees as bounds."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pando_router.core.fair_queue import MAX_DEBTS, OLDEST_TURN, Entry, FairQueue
from tests.examples import examples


def entry(
    tenant: str = "t", *, weight: float = 1.0, rank: int = 0, priority: int = 0, cost: float = 1.0
) -> Entry[None]:
    return Entry(item=None, tenant=tenant, weight=weight, rank=rank, priority=priority, cost=cost)


def served(queue: FairQueue[None], times: int) -> list[Entry[None]]:
    out = []
    for _ in range(times):
        head = queue.head()
        assert head is not None
        queue.take(head)
        out.append(head)
    return out


@dataclass
class Model:
    """The three rules with plain lists and sorting."""

    waiting: list[Entry[None]] = field(default_factory=list)  # in order of arrival
    tags: dict[tuple[int, str], float] = field(default_factory=dict)  # of waiting and past tenants
    active: dict[tuple[int, str], int] = field(default_factory=dict)  # since which arrival
    virtual: dict[int, float] = field(default_factory=dict)
    taken: int = 0

    def add(self, new: Entry[None]) -> None:
        flow = new.rank, new.tenant
        if flow not in self.active:
            self.active[flow] = new.number
            tag = max(self.virtual.get(new.rank, 0.0), self.tags.get(flow, 0.0))
            self.tags[flow] = tag
        self.waiting.append(new)

    def of_flow(self, flow: tuple[int, str]) -> list[Entry[None]]:
        return [e for e in self.waiting if (e.rank, e.tenant) == flow]

    def fairest(self, rank: int) -> tuple[int, str]:
        flows = {flow for flow in self.active if flow[0] == rank}
        return min(flows, key=lambda flow: (self.tags[flow], self.active[flow]))

    def head(self) -> Entry[None] | None:
        if not self.waiting:
            return None
        if self.taken % OLDEST_TURN == OLDEST_TURN - 1:
            return self.waiting[0]
        flow = self.fairest(max(e.rank for e in self.waiting))
        return min(self.of_flow(flow), key=lambda e: (e.priority, e.number))

    def take(self, one: Entry[None]) -> None:
        self.taken += 1
        flow = one.rank, one.tenant
        if self.fairest(one.rank) == flow:
            self.virtual[one.rank] = self.tags[flow]
        self.tags[flow] += one.cost / one.weight
        self.remove(one)

    def remove(self, one: Entry[None]) -> None:
        self.waiting.remove(one)
        flow = one.rank, one.tenant
        if not self.of_flow(flow):
            del self.active[flow]
        if not any(e.rank == one.rank for e in self.waiting):  # the busy period is over
            self.virtual.pop(one.rank, None)
            self.tags = {flow: tag for flow, tag in self.tags.items() if flow[0] != one.rank}


class FairQueueAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[None] = FairQueue()
        self.model = Model()

    @rule(
        tenant=st.sampled_from("abcd"),
        weight=st.sampled_from([0.5, 1.0, 2.0]),
        rank=st.sampled_from([0, 0, 0, 1, -1]),
        priority=st.integers(-2, 2),
        cost=st.integers(1, 50),
    )
    def arrives(self, tenant: str, weight: float, rank: int, priority: int, cost: int) -> None:
        new = entry(tenant, weight=weight, rank=rank, priority=priority, cost=float(cost))
        self.queue.add(new)
        self.model.add(new)

    @precondition(lambda self: self.model.waiting)
    @rule(count=st.integers(1, 20))
    def gets_places(self, count: int) -> None:
        for _ in range(min(count, len(self.model.waiting))):
            head = self.queue.head()
            assert head is self.model.head()
            assert head is not None
            self.queue.take(head)
            self.model.take(head)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.model.waiting))
        assert gone in self.queue
        self.queue.remove(gone)
        self.model.remove(gone)
        assert gone not in self.queue

    @invariant()
    def agree(self) -> None:
        assert len(self.queue) == len(self.model.waiting)
        assert self.queue.head() is self.model.head()


TestFairQueue = FairQueueAgainstModel.TestCase
TestFairQueue.settings = settings(max_examples=examples(40), stateful_step_count=60)


@given(
    found=st.integers(0, 12),
    hostile=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=40),
)
def test_nobody_is_overtaken_for_ever(found: int, hostile: list[tuple[int, int]]) -> None:
    queue: FairQueue[None] = FairQueue()
    for _ in range(found):
        queue.add(entry("early"))
    last = entry("poor", rank=-1, priority=100, weight=0.001, cost=1e6)
    queue.add(last)
    for place in range(OLDEST_TURN * (found + 1)):
        rank, priority = hostile[place % len(hostile)]
        queue.add(entry(f"new {place}", rank=rank, priority=priority, weight=1000.0))
        queue.add(entry("rich", rank=rank, priority=priority, weight=1000.0))
        (one,) = served(queue, 1)
        if one is last:
            return
    raise AssertionError(f"{last} was still waiting after {OLDEST_TURN * (found + 1)} places")


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=60, max_size=200),
    st.sampled_from([(1.0, 1.0), (1.0, 2.0), (3.0, 1.0)]),
)
def test_tokens_are_shared_by_weight_up_to_one_request_each(
    costs: list[tuple[int, int]], weights: tuple[float, float]
) -> None:
    """Theorem 1 of the SFQ paper, while both wait; turns of the oldest are also charged."""
    queue: FairQueue[None] = FairQueue()
    for a, b in costs:
        queue.add(entry("a", weight=weights[0], cost=a))
        queue.add(entry("b", weight=weights[1], cost=b))
    had = {"a": 0.0, "b": 0.0}
    left = {"a": len(costs), "b": len(costs)}
    slack = 40 / weights[0] + 40 / weights[1]
    while all(left.values()):
        (one,) = served(queue, 1)
        had[one.tenant] += one.cost / one.weight
        left[one.tenant] -= 1
        # A turn of the oldest may add to a lead of one request.
        assert abs(had["a"] - had["b"]) <= 2 * slack


def test_a_flood_of_one_tenant_does_not_delay_another_tenants_request() -> None:
    queue: FairQueue[None] = FairQueue()
    for _ in range(500):
        queue.add(entry("flood"))
    served(queue, 3)
    queue.add(entry("polite"))
    assert "polite" in [one.tenant for one in served(queue, 2)]


def test_priority_orders_a_tenants_own_requests_only() -> None:
    queue: FairQueue[None] = FairQueue()
    for priority in (0, -5, 1, -5):
        queue.add(entry("a", priority=priority))
    queue.add(entry("b", priority=7))
    queue.add(entry("b", priority=8))
    order = [(one.tenant, one.priority) for one in served(queue, 6)]
    assert order == [("a", -5), ("b", 7), ("a", -5), ("b", 8), ("a", 0), ("a", 1)]


def test_a_tenant_of_higher_rank_goes_first() -> None:
    queue: FairQueue[None] = FairQueue()
    queue.add(entry("batch", priority=-9))
    queue.add(entry("batch"))
    queue.add(entry("chat", rank=1))
    assert [one.tenant for one in served(queue, 3)] == ["chat", "batch", "batch"]


def test_a_tenant_that_sends_one_after_the_other_gets_its_share_and_not_more() -> None:
    """Its virtual time is remembered while others wait."""
    queue: FairQueue[None] = FairQueue()
    for _ in range(400):
        queue.add(entry("many", cost=1.0))
    places = 300
    greedy = 0
    queue.add(entry("one", cost=10.0))
    for _ in range(places):
        (one,) = served(queue, 1)
        if one.tenant == "one":
            greedy += 1
            queue.add(entry("one", cost=10.0))
    assert 20 <= greedy <= 40  # 27 of 300 places are half of the tokens


def test_a_full_queue_takes_from_the_tenant_that_fills_it() -> None:
    queue: FairQueue[None] = FairQueue()
    flood = [entry("flood", priority=p) for p in (0, 0, -3)]
    for one in flood:
        queue.add(one)
    assert queue.victim(entry("polite")) is flood[1]  # the last one of the largest priority
    assert queue.victim(entry("flood")) is None
    assert queue.victim(entry("flood", priority=-1)) is flood[1]
    assert queue.victim(entry("polite", rank=-1)) is None
    assert queue.victim(entry("flood", rank=1)) is flood[1]
    queue.add(entry("polite"))
    assert queue.victim(entry("polite")) is flood[1]
    queue.add(entry("polite"))
    assert queue.victim(entry("polite")) is None  # it would have as many as the flood


def test_a_full_queue_counts_requests_by_the_weight_of_their_tenant() -> None:
    queue: FairQueue[None] = FairQueue()
    for tenant, weight in (("heavy", 4.0), ("light", 1.0)):
        for _ in range(2):
            queue.add(entry(tenant, weight=weight))
    lights = queue.victim(entry("other"))
    assert lights is not None
    assert lights.tenant == "light", "2 requests for a weight of 1, against 2 for 4"
    assert queue.victim(entry("third", weight=3.0)) is lights
    assert queue.victim(entry("above", rank=1)) is lights
    assert queue.victim(entry("least", weight=0.5)) is None, "1 request for a half is 2 for 1"


def test_state_is_bounded_by_what_waits() -> None:
    queue: FairQueue[None] = FairQueue()
    queue.add(entry("stays", rank=0, weight=1e-9, cost=1e9))
    queue.add(entry("stays", rank=0, weight=1e-9, cost=1e9))
    served(queue, 1)
    for number in range(5 * MAX_DEBTS):
        one = entry(f"tenant {number}", cost=100.0)
        queue.add(one)
        queue.take(one)
    (rank,) = queue._ranks
    assert len(rank.debts) <= MAX_DEBTS
    assert len(rank.flows) == len(rank.ordered) == 1
    for head in iter(queue.head, None):
        queue.remove(head)
    assert not queue._ranks
