"""Requests with LoRA adapters: mixed in a batch, held in slots, never starved."""

import sys
from types import FrameType
from typing import Any

import pytest

from pando_worker.messages import FinishReason, LogprobsWanted, Pooling
from tests.worker.scheduler.hash_model import HashAdapters, expected_embedding, expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")

PROMPT = list(range(1, 42))
A, B, C, D = (bytes([number]) * 16 for number in range(1, 5))
FILES = {"a": (A, 8), "b": (B, 8), "c": (C, 16), "d": (D, 64)}


def world_of(*paths: str, slots: int = 2, pages: int = 4, asks: int = 0, **more: Any) -> World:
    """A world with these adapters."""
    adapters = HashAdapters(dict(FILES), asks)
    world = World(adapters=adapters, adapter_slots=slots, adapter_pages=pages, **more)
    calls = [world.load_adapter(path) for path in paths]
    world.run()
    assert world.identities.keys() >= set(calls), world.refused
    return world


def test_one_batch_mixes_adapters_and_the_base() -> None:
    world = world_of("a", "b")
    for rid, adapter in (("base", b""), ("a", A), ("b", B)):
        world.send(rid, PROMPT, 6, adapter=adapter)
    world.run()
    for rid, adapter in (("base", b""), ("a", A), ("b", B)):
        assert world.tokens[rid] == expected_tokens(PROMPT, 6, adapter=adapter)
    assert world.tokens["a"] != world.tokens["b"] != world.tokens["base"]
    rows = [batch.adapters.slots.tolist() for batch in world.batches if batch.adapters]
    assert any(len(set(row)) == 3 and -1 in row for row in rows)


def test_a_step_of_base_rows_says_nothing_of_adapters() -> None:
    world = world_of("a")
    world.send("a", PROMPT, 2, adapter=A)
    world.send("base", PROMPT, 8)
    world.run()
    last = [batch.adapters for batch in world.batches][-4:]
    assert last == [None] * 4


def test_an_adapter_has_its_own_prefixes_and_two_names_of_one_share_them() -> None:
    world = world_of("a", "b")
    for rid, adapter in (("base", b""), ("a", A), ("b", B), ("a again", A), ("base again", b"")):
        world.send(rid, PROMPT, adapter=adapter)
        world.run()
    assert world.cached == {"base": 0, "a": 0, "b": 0, "a again": 40, "base again": 40}


def test_salts_separate_within_an_adapter() -> None:
    world = world_of("a")
    for rid, space in (("1", b""), ("2", b"s" * 17), ("3", b"s" * 17)):
        world.send(rid, PROMPT, adapter=A, namespace=space)
        world.run()
    assert world.cached == {"1": 0, "2": 0, "3": 40}


def test_an_adapter_that_is_not_loaded_is_refused() -> None:
    world = world_of("a")
    world.send("b", PROMPT, adapter=B)
    world.run()
    assert world.rejected["b"].status == 404
    world = World()
    world.send("b", PROMPT, adapter=B)
    assert world.rejected["b"].status == 404
    call = world.load_adapter("a")
    assert "max_loras" in world.refused[call].message


def test_a_broken_adapter_is_refused_with_its_reason() -> None:
    world = world_of()
    call = world.load_adapter("no such")
    world.run()
    assert (world.refused[call].status, world.refused[call].message) == (
        400,
        "no such is no adapter",
    )


def test_others_run_while_an_adapter_is_loaded() -> None:
    world = world_of("a", asks=6)
    world.send("a", PROMPT, adapter=A)
    world.send("base", PROMPT[::-1], 4)
    for _ in range(4):
        world.step()
    assert len(world.tokens["base"]) >= 2
    assert not world.tokens["a"]
    world.run()
    assert world.tokens["a"] == expected_tokens(PROMPT, 4, adapter=A)


def test_a_scheduler_that_only_waits_for_a_load_says_so() -> None:
    world = world_of("a", asks=6)
    world.send("a", PROMPT, adapter=A)
    world.step()
    assert world.scheduler.only_waits
    assert not world.scheduler.is_idle
    world.run()
    assert world.finish["a"] is FinishReason.LENGTH


def test_an_adapter_waits_for_a_slot_until_requests_end_and_others_go_on() -> None:
    world = world_of("a", "b", "c")
    world.send("a", PROMPT, 30, adapter=A)
    world.send("b", PROMPT, 8, adapter=B)
    world.send("c", PROMPT, 4, adapter=C)
    world.send("base", PROMPT, 4)
    while "base" not in world.finish:
        world.step()
    assert not world.tokens["c"]
    stats = world.scheduler.stats()
    assert (stats.free_adapter_slots, stats.adapters_waiting) == (0, 1)
    while "c" not in world.finish:
        world.step()
    assert "a" not in world.finish
    assert world.places.device == (A, C)
    world.run()
    for rid, adapter in (("a", A), ("b", B), ("c", C)):
        assert world.tokens[rid] == expected_tokens(PROMPT, len(world.tokens[rid]), adapter=adapter)
    assert world.scheduler.stats().free_adapter_slots == 2


def test_small_adapters_share_pages_and_a_large_one_needs_several_to_leave() -> None:
    world = world_of("a", "b", "d", slots=4, pages=4)
    for rid, adapter in (("a", A), ("b", B), ("d", D), ("a 2", A)):
        world.send(rid, PROMPT, 3, adapter=adapter)
        world.run()
        assert world.tokens[rid] == expected_tokens(PROMPT, 3, adapter=adapter)
    assert world.places.device == (A,)


@pytest.mark.parametrize("policy", ["lpm", "fcfs", "hrrn", "dfs-weight", "priority"])
def test_an_adapter_gets_a_slot_although_others_have_requests_all_the_time(policy: str) -> None:
    """The requests of `a` and `b` overlap, so that no slot is ever idle by itself."""
    most = 6
    world = world_of("a", "b", "c", max_passed_over=most, schedule_policy=policy, pages=4)
    sent = 0

    def keep_busy() -> None:
        nonlocal sent
        while len(world.scheduler.planner.running) + len(world.scheduler.planner.waiting) < 6:
            sent += 1
            world.send(f"r{sent}", PROMPT, 3 + sent % 4, adapter=(A, B)[sent % 2])

    keep_busy()
    world.step()
    world.send("c", PROMPT, 4, adapter=C)
    began = sent
    while "c" not in world.finish:
        keep_busy()
        world.step()
        assert sent < began + 60, "starved"
    assert sent - began > most, "others passed"
    world.run()
    assert all(
        tokens
        == expected_tokens(
            PROMPT, len(tokens), adapter=C if rid == "c" else (A, B)[int(rid[1:]) % 2]
        )
        for rid, tokens in world.tokens.items()
    )


def test_a_large_adapter_does_not_starve_behind_small_ones() -> None:
    world = world_of("a", "b", "c", "d", slots=3, pages=4, max_passed_over=3)
    sent = 0

    def keep_busy() -> None:
        nonlocal sent
        while len(world.scheduler.planner.running) + len(world.scheduler.planner.waiting) < 6:
            sent += 1
            world.send(f"r{sent}", PROMPT, 3 + sent % 4, adapter=(A, B, C)[sent % 3])

    keep_busy()
    world.step()
    world.send("d", PROMPT, 4, adapter=D)
    while "d" not in world.finish:
        keep_busy()
        world.step()
        assert sent < 80, "starved"
    world.run()


def test_base_requests_are_not_held_up_while_an_adapter_starves() -> None:
    world = world_of("a", "b", slots=1, pages=4, max_passed_over=1, max_running=4)
    world.send("a", PROMPT, 60, adapter=A)
    world.step()
    world.send("b", PROMPT, 4, adapter=B)
    for index in range(8):
        world.send(f"base {index}", PROMPT, 2)
    for _ in range(30):
        world.step()
    assert all(f"base {index}" in world.finish for index in range(8))
    assert "a" not in world.finish
    world.run()
    assert world.tokens["b"] == expected_tokens(PROMPT, 4, adapter=B)


def test_a_retracted_request_keeps_its_slot() -> None:
    world = world_of("a", "b", slots=1, max_running=4, new_token_ratio=0.01, watermark=0.0)
    world.send("first", PROMPT, 100, adapter=A)
    world.send("second", [5, *PROMPT], 100, adapter=A)
    world.send("third", [6, *PROMPT], 100, adapter=A)
    world.send("b", PROMPT, 2, adapter=B)
    while not world.scheduler.stats().retracted_requests_total:
        world.step()
    retracted = [req for req in world.scheduler.planner.waiting if req.slot >= 0]
    assert retracted
    assert world.places.device == (A,)
    world.run()
    assert world.adapters.loads == 2
    assert world.tokens["third"] == expected_tokens([6, *PROMPT], 100, adapter=A)


def test_aborts_and_deadlines_release_slots() -> None:
    now = [0.0]
    world = world_of("a", "b", "c", slots=1, clock=lambda: now[0])
    world.send("a", PROMPT, 50, adapter=A)
    world.send("b", PROMPT, 50, adapter=B, deadline_s=5.0)
    world.send("c", PROMPT, 4, adapter=C)
    world.step()
    world.step()
    world.abort("a")
    for _ in range(4):
        world.step()
    assert world.places.device == (B,)
    now[0] = 6.0
    world.run()
    assert world.finish["a"] is FinishReason.ABORT
    assert world.rejected["b"].status == 504
    assert world.tokens["c"] == expected_tokens(PROMPT, 4, adapter=C)


def test_a_request_that_waits_for_a_slot_can_be_aborted() -> None:
    world = world_of("a", "b", slots=1, asks=3)
    world.send("a", PROMPT, 10, adapter=A)
    world.send("b", PROMPT, 10, adapter=B)
    world.step()
    world.abort("b")
    world.abort("a")
    world.run()
    assert set(world.finish.values()) == {FinishReason.ABORT}
    assert world.scheduler.stats().free_adapter_slots == 1


def test_a_load_that_fails_fails_its_requests_alone() -> None:
    world = world_of("a", "b")
    world.adapters.files["a"] = (C, 8)
    world.send("a", PROMPT, adapter=A)
    world.send("b", PROMPT, adapter=B)
    world.run()
    assert world.rejected["a"].status == 502
    assert "a has changed" in world.rejected["a"].message
    assert world.tokens["b"] == expected_tokens(PROMPT, 4, adapter=B)
    world.adapters.files["a"] = (A, 8)
    world.send("a 2", PROMPT, adapter=A)
    world.run()
    assert world.tokens["a 2"] == expected_tokens(PROMPT, 4, adapter=A)


def test_an_unloaded_adapter_is_forgotten_after_its_requests() -> None:
    world = world_of("a", "b")
    world.send("a", PROMPT, 10, adapter=A)
    world.step()
    world.step()
    call = world.unload_adapter(A)
    world.send("late", PROMPT, adapter=A)
    world.step()
    assert world.rejected["late"].status == 404
    assert not world.done_calls
    world.run()
    assert world.done_calls == [call]
    assert world.tokens["a"] == expected_tokens(PROMPT, 10, adapter=A)
    assert A not in world.places.device
    assert A not in world.places.host


def test_an_adapter_with_two_names_stays_until_both_are_unloaded() -> None:
    world = world_of("a", "a")
    world.unload_adapter(A)
    world.send("a", PROMPT, adapter=A)
    world.run()
    assert world.finish["a"] is FinishReason.LENGTH
    world.unload_adapter(A)
    world.run()
    assert world.places.host == world.places.device == ()


def test_an_adapter_that_is_unloaded_and_loaded_again_goes_on() -> None:
    world = world_of("a", asks=2)
    world.send("a", PROMPT, 30, adapter=A)
    for _ in range(8):
        world.step()
    unload = world.unload_adapter(A)
    world.step()
    world.load_adapter("a")
    for _ in range(5):
        world.step()
    assert "a" not in world.finish
    assert world.done_calls == [unload]
    world.send("b", PROMPT, adapter=A)
    world.run()
    assert world.adapters.loads == 1
    assert world.tokens["b"] == expected_tokens(PROMPT, 4, adapter=A)


def test_a_pinned_adapter_is_loaded_at_once_and_stays() -> None:
    world = world_of("a", "b", "c", slots=2)
    call = world.pin_adapter(A)
    world.run()
    assert world.done_calls == [call]
    assert world.places.device == (A,)
    for rid, adapter in (("b", B), ("c", C), ("b 2", B)):
        world.send(rid, PROMPT, adapter=adapter)
        world.run()
    assert world.adapters.loads == 4
    world.send("a", PROMPT, adapter=A)
    world.run()
    assert world.adapters.loads == 4
    world.pin_adapter(A, is_pinned=False)
    for rid, adapter in (("c 2", C), ("b 3", B)):
        world.send(rid, PROMPT, adapter=adapter)
        world.run()
    assert set(world.places.device) == {B, C}


def test_a_pinned_adapter_gets_a_slot_while_all_are_held() -> None:
    world = world_of("a", "b", "c", slots=2)
    world.send("a", PROMPT, 20, adapter=A)
    world.send("b", PROMPT, 8, adapter=B)
    world.step()
    world.step()
    world.pin_adapter(C)
    world.send("b 2", PROMPT, 8, adapter=B)
    while "b" not in world.finish:
        world.step()
    for _ in range(3):
        world.step()
    assert C in world.places.device
    world.run()
    assert world.tokens["b 2"] == expected_tokens(PROMPT, 8, adapter=B)


def test_pins_leave_room_for_each_of_the_others() -> None:
    world = world_of("a", "b", "d", slots=2, pages=4)
    call = world.pin_adapter(A)
    world.run()
    assert world.refused[call].status == 409  # d needs all four pages
    world = world_of("a", "b", slots=2, pages=4)
    world.pin_adapter(A)
    world.pin_adapter(B)
    call = world.load_adapter("c")
    world.run()
    assert world.refused[call].status == 409
    assert set(world.places.device) == {A, B}


def test_pins_leave_room_for_an_unloaded_adapter_while_a_request_waits_for_it() -> None:
    world = world_of("a", "b", slots=1)
    world.send("a", PROMPT, 8, adapter=A)
    world.step()
    world.send("b", PROMPT, 8, adapter=B)
    world.unload_adapter(B)
    call = world.pin_adapter(A)
    world.run()
    assert world.refused[call].status == 409
    assert world.tokens["b"] == expected_tokens(PROMPT, 8, adapter=B)
    call = world.pin_adapter(A)
    world.run()
    assert world.done_calls[-1] == call


def test_embeddings_and_scored_prompts_run_with_adapters() -> None:
    world = world_of("a", "b")
    for pooling in Pooling:
        world.embed(f"{pooling} a", PROMPT, pooling, A)
        world.embed(f"{pooling} base", PROMPT, pooling)
    world.send("scored", PROMPT, 3, adapter=B, logprobs=LogprobsWanted(top=0, prompt_start=0))
    world.run()
    for pooling in Pooling:
        expected = expected_embedding(PROMPT, pooling, A)
        assert world.embeddings[f"{pooling} a"] == pytest.approx(expected, abs=1e-6)
        expected = expected_embedding(PROMPT, pooling)
        assert world.embeddings[f"{pooling} base"] == pytest.approx(expected, abs=1e-6)
    assert world.tokens["scored"] == expected_tokens(PROMPT, 3, adapter=B)
    assert len(world.prompt_logprobs["scored"]) == len(PROMPT) - 1
    assert world.scheduler.stats().free_adapter_slots == 2


def test_a_grammar_jumps_forward_with_an_adapter() -> None:
    world = world_of("a")
    world.send("a", PROMPT, 10, adapter=A, grammar="2:5 6 7 8 9 …")
    world.send("base", PROMPT, 10)
    world.run()
    assert world.tokens["a"][2:7] == [5, 6, 7, 8, 9]
    expected = expected_tokens(PROMPT, 2, adapter=A)
    expected += [5, 6, 7, 8, 9]
    expected += expected_tokens([*PROMPT, *expected], 3, adapter=A)
    assert world.tokens["a"] == expected


def test_a_step_costs_the_same_however_many_requests_wait_for_slots() -> None:
    def calls(waiting: int) -> float:
        """Python's and C's, in a step."""
        files = {str(number): (bytes([number]) * 16, 8) for number in range(1, 21)}
        adapters = HashAdapters(files)
        world = World(adapters=adapters, adapter_slots=1, adapter_pages=4, max_passed_over=5)
        for path in files:
            world.load_adapter(path)
        world.run()
        world.send("running", PROMPT, 60, adapter=files["1"][0])
        world.step()
        for number in range(waiting):
            world.send(f"r{number}", PROMPT, 2, adapter=files[str(2 + number % 19)][0])
        for _ in range(5):
            world.step()
        count = 0

        def note(frame: FrameType, event: str, arg: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            for _ in range(20):
                world.scheduler.step()
        finally:
            sys.setprofile(None)
        assert world.scheduler.stats().waiting == waiting
        return count / 20

    assert calls(950) < 1.1 * calls(38)


def test_loads_and_waits_are_measured() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    world = world_of("a", "b", slots=1, asks=2, clock=clock)
    world.send("a", PROMPT, 10, adapter=A)
    world.send("b", PROMPT, 4, adapter=B)
    world.run()
    stats = world.scheduler.stats()
    assert stats.adapter_loads_total == 2
    assert 0 < stats.adapter_load_s < stats.adapter_slot_wait_s
    assert stats.adapter_slots == 1
    assert stats.adapter_idle_s == 0.5, "b is idle, and gives way to the next"
    assert world.scheduler.stats() == stats
    now[0] += 7
    assert world.scheduler.stats().adapter_idle_s == 7.5


def test_an_empty_slot_means_that_none_has_to_give_way() -> None:
    world = world_of("a", slots=2)
    world.send("a", PROMPT, 4, adapter=A)
    world.run()
    assert world.scheduler.stats().adapter_idle_s == 0.0


def test_the_measured_wait_is_that_of_one_place_in_the_line() -> None:
    """Placement multiplies it by the adapters that wait before one."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001
        return now[0]

    world = world_of("a", "b", "c", "d", slots=1, clock=clock)
    for rid, adapter in (("a", A), ("b", B), ("c", C), ("d", D)):
        world.send(rid, PROMPT, 20, adapter=adapter)
    world.run()
    assert 0 < world.scheduler.stats().adapter_slot_wait_s < 1.3 * now[0] / 4
