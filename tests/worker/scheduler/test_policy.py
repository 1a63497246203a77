"""Who of the waiting goes first, and that nobody waits for ever."""

import pytest

from pando_worker.scheduler.planning.policy import MAX_MATCHED
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")

WARM = list(range(16))


def one_at_a_time(policy: str, **settings: object) -> World:
    """Requests are admitted one by one, after a first one that leaves WARM in the cache."""
    world = World(schedule_policy=policy, max_running=1, **settings)  # type: ignore[arg-type]
    world.send("warm", WARM, max_new_tokens=1)
    world.run()
    return world


def order(world: World) -> list[str]:
    world.run()
    return [rid for rid in world.finish if rid != "warm"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("lpm", ["full", "half", "cold"]), ("fcfs", ["cold", "half", "full"])],
)
def test_lpm_runs_the_longest_cached_prefix_first_and_fcfs_the_first_arrival(
    policy: str, expected: list[str]
) -> None:
    world = one_at_a_time(policy)
    world.send("cold", [90] * 12, max_new_tokens=1)
    world.send("half", [*WARM[:8], 91, 92, 93, 94], max_new_tokens=1)
    world.send("full", [*WARM, 95], max_new_tokens=1)
    assert order(world) == expected


def test_lpm_is_fcfs_where_the_queue_is_long() -> None:
    world = one_at_a_time("lpm")
    rids = [f"r{index}" for index in range(MAX_MATCHED + 2)]
    for index, rid in enumerate(rids):
        world.send(rid, [80 + index % 10] * 4, max_new_tokens=1)
    world.send("hit", [*WARM, 95], max_new_tokens=1)
    finished = order(world)
    assert finished[:3] == rids[:3]
    assert finished.index("hit") < len(rids)  # once the queue is short enough, it is lpm again


def test_dfs_weight_runs_the_branch_that_most_requests_are_in() -> None:
    world = one_at_a_time("dfs-weight")
    other = [50] * 16
    world.send("warm other", other, max_new_tokens=1)
    world.run()
    world.send("a", [*WARM, 1], max_new_tokens=1)
    world.send("b1", [*other, 1], max_new_tokens=1)
    world.send("cold", [90] * 12, max_new_tokens=1)
    world.send("b2", [*other[:8], 2, 3, 4, 5], max_new_tokens=1)
    world.run()
    assert [rid for rid in world.finish if "warm" not in rid] == ["cold", "b1", "b2", "a"]


def test_random_order_is_the_same_in_every_run() -> None:
    def run() -> list[str]:
        world = one_at_a_time("random")
        for index in range(12):
            world.send(f"r{index}", [index] * 4, max_new_tokens=1)
        return order(world)

    first = run()
    assert first == run()
    assert first != sorted(first, key=lambda rid: int(rid[1:]))


def test_priority_runs_the_highest_first_and_equals_by_arrival() -> None:
    world = one_at_a_time("priority")
    for rid, priority in [("low", -1), ("first", 0), ("urgent", 5), ("second", 0)]:
        world.send(rid, [90] * 4, max_new_tokens=1, priority=priority)
    assert order(world) == ["urgent", "first", "second", "low"]


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight", "random", "priority"])
def test_nobody_is_passed_over_by_more_than_the_bound(policy: str) -> None:
    world = one_at_a_time(policy, max_passed_over=3)
    world.send("patient", [90] * 12, max_new_tokens=1, priority=-9)
    sent = 0
    while "patient" not in world.finish:
        while len(world.scheduler.planner.waiting) < 4:
            world.send(f"r{sent}", [*WARM, sent % 7], max_new_tokens=1, priority=9)
            sent += 1
        world.step()
        assert sent < 100
    # Admitted before it: those that the bound allows, and one more, which made it exceed it.
    assert len([rid for rid in world.finish if rid.startswith("r")]) <= 4
    world.run()


@pytest.mark.parametrize("chunk", [32, 2048])
def test_waiting_for_a_shared_prefix_counts_as_being_passed_over(chunk: int) -> None:
    world = World(
        pages=2000,
        page_size=4,
        max_running=64,
        chunked_prefill_size=chunk,
        max_passed_over=2,
        schedule_policy="fcfs",
    )
    shared = [9] * 400
    world.send("first", [*shared, 1], max_new_tokens=1)
    world.send("sharing", [*shared, 2], max_new_tokens=1)
    sent = 0
    [_, sharing] = world.scheduler.planner.waiting
    while "sharing" not in world.finish:
        while len(world.scheduler.planner.waiting) < 12:
            world.send(f"r{sent}", [sent % 90, 3, 4, 5], max_new_tokens=1)
            sent += 1
        world.step()
    assert world.cached["sharing"] >= 368  # it did wait
    assert sharing.passed_over <= 2
    world.run()
