"""vLLM's balancing: 4 times waiting plus running."""

from pando_sim.policies import vllm
from tests.sim.fleet.world import with_router
from tests.sim.policies.routers import beat, fleet, went


def test_a_waiting_request_weighs_as_much_as_four_running_ones() -> None:
    known = fleet("a", "b")
    known.beats = {"a": beat("a", waiting=1), "b": beat("b", running=5)}
    assert went(vllm.VLLM.make(known, with_router(routers=1)), known, 1) == "a"
    known.beats["b"] = beat("b", running=3)
    assert went(vllm.VLLM.make(known, with_router(routers=1)), known, 1) == "b"


def test_choices_between_two_broadcasts_count_for_all_front_ends() -> None:
    known = fleet("a", "b")
    known.beats["b"] = beat("b", running=7)
    policy = vllm.VLLM.make(known, with_router(routers=2))
    assert [went(policy, known, 1) for _ in range(2)] == ["a", "b"]  # 0 to 7, then 8 to 7
    known.time_s = 0.1
    assert went(policy, known, 1) == "a"


def test_front_ends_begin_at_different_engines() -> None:
    begins = []
    for number in range(4):
        known = fleet("a", "b", "c", "d", number=number)
        begins.append(went(vllm.VLLM.make(known, with_router(routers=4)), known, 1))
    assert begins == ["a", "b", "c", "d"]
