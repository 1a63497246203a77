"""Plans in a model of a pool where calls are slow, fail or lose their answers, replicas come and
go, and another operator takes over at any moment."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_operator.adapters.calls import LOAD_S, Load, Unload
from pando_operator.adapters.plan import MOST_LOADS, MOST_UNLOADS, PRELOAD_LIMIT_S
from pando_operator.adapters.replicas import Held
from pando_operator.resource.adapters import Adapter
from tests.examples import examples
from tests.operator.adapters.fleet_model import SLOTS, Fleet, Worker

NAMES = ("a", "b", "c")
SOURCES = ("one", "two", "three", "copy of one", "broken")
CONTENTS = {"one": "1", "two": "2", "three": "3", "copy of one": "1"}
ADAPTERS = st.lists(
    st.builds(
        lambda name, source, pin, preload: Adapter(
            name=name, source=source, pin=pin, preload=preload or pin
        ),
        *(st.sampled_from(NAMES), st.sampled_from(SOURCES), st.booleans(), st.booleans()),
    ),
    max_size=len(NAMES),
    unique_by=lambda adapter: adapter.name,
).filter(lambda adapters: sum(one.pin for one in adapters) < SLOTS)
BY_HAND = Held("by hand")


class Pool(RuleBasedStateMachine):
    @initialize(size=st.integers(0, 4), adapters=ADAPTERS)
    def start(self, size: int, adapters: list[Adapter]) -> None:
        self.fleet = Fleet(contents=dict(CONTENTS))
        for _ in range(size):
            self.fleet.add()
        self.fleet.want(*adapters)

    @rule()
    def reconcile(self) -> None:
        fleet = self.fleet
        plan = fleet.reconcile()
        for call in plan.calls:
            worker = fleet.workers[call.target.replica]
            assert not worker.silent
            assert worker.slots
            assert call.target.adapter in NAMES

    @rule(data=st.data(), lost=st.booleans())
    @precondition(lambda self: self.fleet.running())
    def a_call_ends(self, data: st.DataObject, lost: bool) -> None:
        running = self.fleet.running()
        self.fleet.finish(running[data.draw(st.integers(0, len(running) - 1))], lost=lost)

    @rule(seconds=st.sampled_from((0.1, 2.0, 6.0, 60.0)))
    def time_passes(self, seconds: float) -> None:
        """Heartbeats are never older than the time for which an answer counts."""
        self.fleet.pass_time(seconds)
        if seconds > 5:
            self.heartbeats_arrive()

    @rule()
    def heartbeats_arrive(self) -> None:
        for worker in self.fleet.workers.values():
            worker.beat()

    @rule(adapters=ADAPTERS)
    def the_spec_changes(self, adapters: list[Adapter]) -> None:
        self.fleet.want(*adapters)

    @rule(data=st.data(), source=st.sampled_from(SOURCES))
    @precondition(lambda self: self.fleet.adapters)
    def a_source_changes(self, data: st.DataObject, source: str) -> None:
        """Often after all replicas have the old one."""
        self.fleet.rounds(data.draw(st.sampled_from((0, 8))))
        changed = data.draw(st.sampled_from(self.fleet.adapters))
        self.fleet.want(
            *(
                one.model_copy(update={"source": source}) if one is changed else one
                for one in self.fleet.adapters
            )
        )

    @rule(late_s=st.sampled_from((0.0, 4.0, 100.0, LOAD_S)))
    def another_operator_takes_over(self, late_s: float) -> None:
        self.fleet.restart_operator(late_s)

    @rule(slots=st.sampled_from((SLOTS, SLOTS, 0)))
    def a_replica_joins(self, slots: int) -> None:
        if len(self.fleet.workers) < 6:
            self.fleet.add(slots=slots)

    def _draw(self, data: st.DataObject) -> Worker:
        return data.draw(st.sampled_from([*self.fleet.workers.values()]))

    @rule(data=st.data())
    @precondition(lambda self: self.fleet.workers)
    def a_replica_leaves(self, data: st.DataObject) -> None:
        del self.fleet.workers[self._draw(data).name]

    @rule(data=st.data())
    @precondition(lambda self: self.fleet.workers)
    def a_worker_restarts(self, data: st.DataObject) -> None:
        worker = self._draw(data)
        worker.incarnation += "'"
        worker.has, worker.shown = {}, {}

    @rule(data=st.data(), silent=st.booleans(), full=st.booleans())
    @precondition(lambda self: self.fleet.workers)
    def a_replica_has_trouble(self, data: st.DataObject, silent: bool, full: bool) -> None:
        worker = self._draw(data)
        worker.silent, worker.full = silent, full

    @rule(data=st.data())
    @precondition(lambda self: self.fleet.workers)
    def somebody_loads_one_by_hand(self, data: st.DataObject) -> None:
        worker = self._draw(data)
        worker.has["mine"] = BY_HAND

    @invariant()
    def calls_are_few(self) -> None:
        if not hasattr(self, "fleet"):
            return
        calls = [one.call for one in self.fleet.running()]
        loading = [call.target.replica for call in calls if isinstance(call, Load)]
        assert len(loading) <= MOST_LOADS
        assert len(set(loading)) == len(loading)
        assert sum(isinstance(call, Unload) for call in calls) <= MOST_UNLOADS

    @invariant()
    def weights_are_replaced_at_one_replica_at_a_time(self) -> None:
        if not hasattr(self, "fleet"):
            return
        replacing = [
            one.call.target.adapter
            for one in self.fleet.running()
            if isinstance(one.call, Load)
            and (worker := self.fleet.workers.get(one.call.target.replica))
            and (held := worker.shown.get(one.call.target.adapter))
            and held.identity != self.fleet.contents.get(one.call.source)
            and worker.has.get(one.call.target.adapter) == held
        ]
        assert len(set(replacing)) == len(replacing)

    @invariant()
    def a_broken_source_is_tried_at_one_replica_at_a_time(self) -> None:
        if not hasattr(self, "fleet"):
            return
        tried = [
            one.call.target.adapter
            for one in self.fleet.running()
            if isinstance(one.call, Load) and one.call.source not in CONTENTS
        ]
        assert len(set(tried)) == len(tried)

    @rule()
    def all_goes_well_for_long(self) -> None:
        """Then every replica has what the spec says and nothing else, and calls end, but for those
        that try a broken source again."""
        fleet = self.fleet
        for worker in fleet.workers.values():
            worker.silent = worker.full = False
        fleet.rounds(60, seconds=30.0)
        fleet.now += PRELOAD_LIMIT_S
        wanted = {
            one.name: Held(CONTENTS[one.source], one.pin)
            for one in fleet.adapters
            if one.source in CONTENTS
        }
        broken = {one.name for one in fleet.adapters if one.source not in CONTENTS}
        for worker in fleet.workers.values():
            if worker.slots:
                has = {name: held for name, held in worker.has.items() if name not in broken}
                assert {n: h for n, h in has.items() if n != "mine"} == wanted
        fleet.made.clear()
        fleet.rounds(5)
        assert {call.target.adapter for call in fleet.made} <= broken
        assert fleet.known.keys() == {one.name for one in fleet.adapters}
        assert fleet.plan().waiting == set()
        for state in (fleet.states()[name] for name in wanted):
            usable = sum(worker.slots > 0 for worker in fleet.workers.values())
            assert state.startswith(f"Ready {usable}/{len(fleet.workers)}")


Pool.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestPool = Pool.TestCase
