"""The order of waiting requests, and that none waits for ever."""

import pytest

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


def test_the_order_holds_for_a_long_queue() -> None:
    world = one_at_a_time("lpm")
    for index in range(300):
        world.send(f"r{index}", [80 + index % 10, *range(index % 7)], max_new_tokens=1)
    world.send("hit", [*WARM, 95], max_new_tokens=1)
    assert order(world)[0] == "hit"


@pytest.mark.parametrize("policy", ["lpm", "hrrn"])
def test_what_is_cached_counts_as_far_as_a_request_can_continue_from_it(policy: str) -> None:
    """Of one prefix all pages are cached, but the window pages at its end are gone."""
    now = 0.0
    world = one_at_a_time(
        policy, window=10, window_pages=8, chunked_prefill_size=16, clock=lambda: now
    )
    gone, there = [1] * 48, [2] * 24
    for rid, prompt in (("warm gone", gone), ("warm there", there)):
        world.send(rid, prompt, max_new_tokens=1)
        world.run()
    assert world.cached_len(gone) == 48
    world.send("gone", [*gone, 3], max_new_tokens=1)
    world.send("there", [*there, 3], max_new_tokens=1)
    now = 1.0
    assert [rid for rid in order(world) if "warm" not in rid] == ["there", "gone"]
    assert world.cached["there"] == 24 and world.cached["gone"] < 24


def test_hrrn_runs_what_has_waited_longest_for_its_own_length_first() -> None:
    now = 0.0
    world = one_at_a_time("hrrn", clock=lambda: now)
    world.send("long", [90] * 100, max_new_tokens=1)
    now = 1.0
    world.send("short", [91] * 10, max_new_tokens=1)
    world.send("hit", [*WARM, 95], max_new_tokens=1)  # a token to compute
    now = 2.0
    # They have now waited 2 s (100 tokens), 1 s (10 tokens) and 1 s (1 token).
    assert order(world) == ["hit", "short", "long"]
    world.send("patient", [80] * 100, max_new_tokens=1)
    now = 40.0
    world.send("late", [81] * 10, max_new_tokens=1)
    now = 41.0
    assert order(world)[-2:] == ["patient", "late"]  # 39 s for 100 tokens, 1 s for 10


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


def test_priority_runs_the_smallest_first_and_equals_by_arrival() -> None:
    world = one_at_a_time("priority")
    for rid, priority in [("late", 1), ("first", 0), ("urgent", -5), ("second", 0)]:
        world.send(rid, [90] * 4, max_new_tokens=1, priority=priority)
    assert order(world) == ["urgent", "first", "second", "late"]


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight", "random", "priority"])
def test_nobody_is_passed_over_by_more_than_the_bound(policy: str) -> None:
    world = one_at_a_time(policy, max_passed_over=3)
    world.send("patient", [90] * 12, max_new_tokens=1, priority=10)
    sent = 0
    while "patient" not in world.finish:
        while len(world.scheduler.planner.waiting) < 4:
            world.send(f"r{sent}", [*WARM, sent % 7], max_new_tokens=1, priority=-9)
            sent += 1
        world.step()
        assert sent < 100
    # Before it run as many as the bound allows, and one more, which exceeded it.
    assert len([rid for rid in world.finish if rid.startswith("r")]) <= 4
    world.run()


@pytest.mark.parametrize("chunk", [32, 2048])
def test_others_pass_a_request_that_waits_for_a_shared_prefix_and_it_starts_first_then(
    chunk: int,
) -> None:
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
    while "sharing" not in world.finish:
        while len(world.scheduler.planner.waiting) < 12:
            world.send(f"r{sent}", [sent % 90, 3, 4, 5], max_new_tokens=1)
            sent += 1
        world.step()
    assert world.cached["sharing"] >= 368  # it waited for everything worth waiting for
    done = list(world.finish)
    assert done.index("sharing") - done.index("first") <= 36, "only those admitted before it"
    world.run()
