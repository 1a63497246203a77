"""production-stack's policy: the longest prefix, regardless of load."""

from pando_sim.policies import production_stack
from tests.sim.fleet.world import SPEC
from tests.sim.policies.routers import ask, beat, fleet, went


def test_the_longest_prefix_wins_however_loaded_it_is() -> None:
    known = fleet("a", "b", "c")
    policy = production_stack.PRODUCTION_STACK.make(known, SPEC)
    first = went(policy, known, 1, 2, 3)
    known.loads = {first: 1000}
    known.beats[first] = beat(first, waiting=900)
    for at in range(20):
        assert went(policy, known, 1, 2, 3, 40 + at) == first


def test_those_that_have_the_longest_prefix_are_drawn_alike_and_so_is_everyone_else() -> None:
    known = fleet("a", "b", "c")
    policy = production_stack.PRODUCTION_STACK.make(known, SPEC)
    first = ask(policy, known, 1, 2)
    assert first.matched_chunks == 0
    others = [name for name in "abc" if name != first.replica]
    assert went(policy, known, 1, 2, without=[first.replica]) in others
    drawn = {went(policy, known, 1, 2) for _ in range(50)}
    assert first.replica in drawn
    assert len(drawn) == 2
    assert {went(policy, known, 70 + at) for at in range(50)} == {"a", "b", "c"}
