"""Single plans: which replica loads which adapter, and what its status says."""

from pando_operator.adapters.calls import Load, Unload, delay_s
from pando_operator.adapters.plan import MOST_LOADS, MOST_UNLOADS, PRELOAD_LIMIT_S
from pando_operator.adapters.replicas import Held
from pando_operator.adapters.report import rows, served, summary
from pando_operator.resource.adapters import STATE_CHARS, Adapter
from tests.operator.adapters.fleet_model import Fleet

PIRATE = Adapter(name="pirate", source="org/pirate")
JSON = Adapter(name="json", source="/adapters/json")


def fleet(size: int, *adapters: Adapter, **contents: str) -> Fleet:
    """Its sources have one content each, unless `contents` has another."""
    made = Fleet(contents={one.source: f"{one.name}-1" for one in adapters} | contents)
    for _ in range(size):
        made.add()
    made.want(*adapters)
    return made


def settled(size: int, *adapters: Adapter) -> Fleet:
    """A pool that has all of its adapters."""
    made = fleet(size, *adapters)
    made.rounds(12)
    assert all(row.ready == size for row in rows(made.plan())), made.states()
    made.made.clear()
    return made


def test_a_new_source_is_tried_at_one_replica_then_loaded_by_all() -> None:
    pool = fleet(4, PIRATE)
    (first,) = pool.reconcile().calls
    assert isinstance(first, Load)
    assert pool.reconcile().calls == ()
    pool.finish(*pool.running())
    assert {call.target.replica for call in pool.reconcile().calls} == {
        name for name in pool.workers if name != first.target.replica
    }


def test_all_have_it_and_nothing_is_called_again() -> None:
    pool = settled(3, PIRATE, JSON)
    assert pool.states() == {"pirate": "Ready 3/3", "json": "Ready 3/3"}
    assert summary(rows(pool.plan())) == "2/2"
    pool.rounds(50)
    assert pool.made == []


def test_different_adapters_begin_at_different_replicas() -> None:
    many = [Adapter(name=f"a{i}", source=f"org/a{i}") for i in range(20)]
    calls = fleet(4, *many).plan().calls
    assert len({call.target.replica for call in calls}) == len(calls) > 1


def test_calls_of_a_pool_are_bounded_and_each_replica_loads_one_at_a_time() -> None:
    many = [Adapter(name=f"a{i}", source=f"org/a{i}") for i in range(3)]
    pool = settled(10, *many)
    more = Adapter(name="more", source="org/more", pin=True)
    pool.contents["org/more"] = "more-1"
    pool.want(more)
    pool.reconcile()
    pool.finish(*(one for one in pool.running() if isinstance(one.call, Load)))
    pool.reconcile()
    calls = [one.call for one in pool.running()]
    loading = [call.target.replica for call in calls if isinstance(call, Load)]
    assert len(loading) == len(set(loading)) == MOST_LOADS
    assert sum(isinstance(call, Unload) for call in calls) == MOST_UNLOADS


def test_other_weights_replace_the_old_ones_at_one_replica_after_the_other() -> None:
    pool = settled(4, PIRATE)
    pool.contents["org/pirate-v2"] = "pirate-2"
    pool.want(PIRATE.model_copy(update={"source": "org/pirate-v2"}))
    for done in range(4):
        assert pool.states()["pirate"] == f"Ready {done}/4"
        (call,) = pool.reconcile().calls
        assert isinstance(call, Load)
        assert pool.reconcile().calls == ()
        pool.finish(*pool.running())
    assert pool.states()["pirate"] == "Ready 4/4"


def test_a_broken_replacement_stays_with_one_try_at_a_time_and_the_old_weights_serve() -> None:
    pool = settled(3, PIRATE)
    pool.want(PIRATE.model_copy(update={"source": "org/broken"}))
    pool.rounds(20, seconds=2.0)
    assert {worker.has["pirate"].identity for worker in pool.workers.values()} == {"pirate-1"}
    assert 1 < len(pool.loads()) < 6  # ever more rarely
    (row,) = rows(pool.plan())
    assert row.failing
    assert row.state.startswith("Ready 0/3: w") and "broken" in row.state
    pool.want(PIRATE)
    pool.rounds(3)
    assert pool.states()["pirate"] == "Ready 3/3"


def test_one_replica_without_room_does_not_stop_the_others() -> None:
    pool = fleet(4, PIRATE)
    pool.workers["w2"].full = True
    pool.rounds(4)
    assert pool.states()["pirate"] == "Ready 3/4: w2: out of disk"
    pool.workers["w2"].full = False
    pool.rounds(20, seconds=30)
    assert pool.states()["pirate"] == "Ready 4/4"


def test_a_failed_call_is_repeated_after_ever_longer_pauses() -> None:
    delays = [delay_s(count) for count in range(1, 12)]
    assert delays == sorted(delays)
    assert delays[:3] == [5, 10, 20]
    assert delays[-1] == 300


def test_a_removed_adapter_is_unloaded_everywhere_and_then_forgotten() -> None:
    pool = settled(2, PIRATE, JSON)
    pool.want(JSON)
    calls = pool.reconcile().calls
    assert sorted((call.target.replica, call.target.adapter) for call in calls) == [
        ("w1", "pirate"),
        ("w2", "pirate"),
    ]
    assert all(isinstance(call, Unload) for call in calls)
    assert pool.states()["pirate"] == "Removing, still on 2/2"
    assert summary(rows(pool.plan())) == "1/1"
    pool.rounds(2)
    assert pool.states() == {"json": "Ready 2/2"}
    assert pool.known.keys() == {"json"}


def test_adapters_that_others_loaded_by_hand_stay() -> None:
    pool = settled(2, PIRATE)
    for worker in pool.workers.values():
        worker.has["mine"] = Held("other")
    pool.rounds(5)
    assert pool.made == []


def test_an_adapter_that_was_replaced_by_hand_is_put_back() -> None:
    pool = settled(2, PIRATE)
    pool.workers["w1"].has["pirate"] = Held("other")
    pool.rounds(3)
    assert pool.loads() == [("w1", "org/pirate")]
    assert pool.workers["w1"].has["pirate"] == Held("pirate-1")


def test_a_pin_that_changes_is_told_to_all_and_moves_no_weights() -> None:
    pool = settled(3, PIRATE)
    pool.want(PIRATE.model_copy(update={"pin": True}))
    assert len(pool.reconcile().calls) == 3
    pool.rounds(2)
    assert {worker.has["pirate"] for worker in pool.workers.values()} == {Held("pirate-1", True)}


def test_an_unload_that_runs_keeps_its_line_though_the_replica_shows_no_name() -> None:
    pool = settled(1, PIRATE)
    pool.want()
    pool.reconcile()
    pool.workers["w1"].shown = {}
    assert pool.states()["pirate"] == "Removing, still on 1/1"
    assert pool.reconcile().calls == ()
    pool.rounds(2)
    assert pool.states() == {}


def test_pinned_adapters_are_loaded_first() -> None:
    first, second, last = (
        Adapter(name=name, source=name, pin=pin, preload=preload)
        for name, pin, preload in (("c", True, True), ("b", False, True), ("a", False, False))
    )
    pool = fleet(1, last, second, first)
    for name in ("c", "b", "a"):
        (call,) = pool.reconcile().calls
        assert call.target.adapter == name
        pool.finish(*pool.running())


def test_a_new_operator_calls_no_replica_that_has_the_weights() -> None:
    pool = settled(3, PIRATE)
    pool.restart_operator()
    pool.rounds(3)
    assert pool.made == []


def test_a_new_operator_goes_on_with_a_half_done_replacement_and_removal() -> None:
    pool = settled(3, PIRATE, JSON)
    pool.contents["org/v2"] = "pirate-2"
    pool.want(PIRATE.model_copy(update={"source": "org/v2"}))
    pool.reconcile()
    pool.restart_operator()
    pool.rounds(8)
    assert {tuple(worker.has) for worker in pool.workers.values()} == {("pirate",)}
    assert pool.states()["pirate"] == "Ready 3/3"
    assert pool.states() == {"pirate": "Ready 3/3"}


def test_an_adapter_that_a_new_operator_removes_is_unloaded_once_and_no_longer_listed() -> None:
    pool = settled(2, PIRATE)
    pool.add()  # it has no adapter yet, and may be loading one
    pool.restart_operator()
    pool.want()
    pool.reconcile()
    assert pool.states() == {"pirate": "Removing, still on 3/3"}
    pool.rounds()
    assert pool.states() == {}
    assert sorted(call.target.replica for call in pool.made) == ["w1", "w2", "w3"]
    assert all(isinstance(call, Unload) for call in pool.made)


def test_a_load_that_an_earlier_operator_began_ends_with_the_removal() -> None:
    pool = fleet(1, PIRATE)
    pool.reconcile()
    pool.restart_operator(late_s=60)  # the load still runs: no heartbeat shows it
    pool.want()
    pool.rounds(12)
    assert pool.workers["w1"].has == {}
    assert pool.known == {}


def test_a_replica_that_never_took_calls_does_not_keep_a_removed_adapter_listed() -> None:
    pool = settled(1, PIRATE)
    pool.add(slots=0)
    pool.add(incarnation="", silent=True)
    pool.restart_operator()
    pool.want()
    pool.rounds()
    assert pool.states() == {}


def test_a_source_with_other_weights_at_one_replica_is_reported_and_not_loaded_for_ever() -> None:
    pool = settled(2, PIRATE)
    pool.contents["org/pirate"] = "pirate-other"
    pool.add()
    pool.rounds(10)
    assert pool.states()["pirate"].startswith("Ready 2/3: w3: its source has other weights")
    assert pool.loads() == [("w3", "org/pirate")]
    for name in ("w1", "w2"):  # replaced by pods that find the new weights, too
        del pool.workers[name]
        pool.add()
    pool.rounds(10)
    assert pool.states()["pirate"] == "Ready 3/3"


def test_replicas_of_an_older_release_get_no_calls_and_the_status_says_so() -> None:
    pool = fleet(2, PIRATE)
    pool.workers["w1"].slots = 0
    pool.rounds(3)
    assert pool.loads() == [("w2", "org/pirate")]
    assert pool.states()["pirate"].startswith("Ready 1/2: w1: it takes no adapters")
    assert not pool.workers["w1"].joining


def test_a_silent_replica_gets_no_calls_and_its_running_one_ends() -> None:
    pool = settled(2, PIRATE)
    pool.workers["w1"].silent = True
    pool.want(PIRATE, JSON)
    pool.contents[JSON.source] = "json-1"
    pool.rounds(2)
    assert {replica for replica, _ in pool.loads()} == {"w2"}
    pool.workers["w1"].silent = False
    (call,) = pool.reconcile().calls
    pool.workers["w1"].silent = True
    assert pool.reconcile().dropped == {call.target}
    assert pool.running() == []


def test_a_load_that_goes_on_after_its_adapter_was_removed_is_undone() -> None:
    pool = fleet(1, PIRATE)
    pool.reconcile()
    (load,) = pool.running()
    pool.want()
    pool.reconcile()
    pool.finish(load, lost=True)
    pool.rounds(3)
    assert pool.workers["w1"].has == {}
    assert pool.known == {}


def test_a_new_replica_waits_for_preloaded_adapters_and_not_for_others() -> None:
    later = Adapter(name="later", source="later", preload=False)
    pool = settled(1, PIRATE, later)
    pool.add()
    assert pool.plan().waiting == {"w2"}
    (call,) = pool.reconcile().calls
    assert call.target.adapter == "pirate"
    pool.finish(*pool.running())
    assert pool.plan().waiting == set()


def test_a_new_replica_without_a_heartbeat_waits_too() -> None:
    pool = settled(1, PIRATE)
    pool.add(silent=True, incarnation="")
    assert pool.plan().waiting == {"w2"}
    pool.now += PRELOAD_LIMIT_S
    assert pool.plan().waiting == set()


def test_a_broken_adapter_that_no_replica_has_delays_none() -> None:
    pool = fleet(3, PIRATE)
    pool.contents.clear()
    assert pool.plan().waiting == set(pool.workers)
    pool.rounds()
    assert pool.plan().waiting == set()


def test_requests_wait_for_adapters_that_may_be_served() -> None:
    pool = fleet(0, PIRATE, JSON)
    assert served(rows(pool.plan())) == ["pirate", "json"]
    pool.add(), pool.add()
    del pool.contents[JSON.source]
    pool.rounds(3)
    assert served(rows(pool.plan())) == ["pirate"]
    pool.want(JSON)
    pool.reconcile()
    assert served(rows(pool.plan())) == []


def test_a_new_replica_that_fails_to_load_what_others_have_waits_for_a_bounded_time() -> None:
    pool = settled(2, PIRATE)
    pool.add(full=True)
    pool.rounds(2)
    assert pool.plan().waiting == {"w3"}
    pool.rounds(2, seconds=PRELOAD_LIMIT_S)
    assert pool.plan().waiting == set()


def test_a_long_error_is_cut_and_the_number_of_others_stays() -> None:
    pool = fleet(2, PIRATE)
    pool.reconcile()
    for worker in ("w1", "w2"):
        for attempt in pool.running():
            pool.attempts[attempt.call.target] = attempt.ended(pool.now, error="x" * 5000)
        pool.now += 6
        if worker == "w1":
            pool.reconcile()
    (row,) = rows(pool.plan())
    assert len(row.state) == STATE_CHARS
    assert row.state.endswith("… (and 1 more)")
