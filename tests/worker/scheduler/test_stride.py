"""A stride leaves a scheduler in the same state as its single steps, to the last field."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from pando_worker.batch import ForwardBatch, Int32, StepResult
from pando_worker.messages import LogprobsWanted, Pooling
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.scheduler.batches.decodes import Decodes
from pando_worker.scheduler.req import Req
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.scheduler.stride import Stride
from pando_worker.stats import Stats
from tests.examples import examples
from tests.worker.scheduler.world import World

MOST = 40  # steps of a stride


@dataclass
class Seeds:
    """Yields each row's request seed as its token; its clock advances by the step's work."""

    now_s: float = 0.0
    launched: list[Stats] = field(default_factory=list)  # the scheduler's state after each launch
    scheduler: Scheduler | None = None

    def clock(self) -> float:
        return self.now_s

    def launch(self, batch: ForwardBatch) -> "SeedsStep":
        lens = zip(batch.seq_lens.tolist(), batch.extend_lens.tolist(), strict=True)
        context = sum(attended(end - count, count) for end, count in lens)
        seconds = step_s(len(batch.input_ids), context)
        return SeedsStep(self, seconds, batch.sampling.seed)


@dataclass
class SeedsStep:
    runner: Seeds
    seconds: float
    tokens: Any

    def sample(self, mask: Int32 | None) -> None: ...

    def result(self) -> StepResult:
        assert self.runner.scheduler is not None
        self.runner.launched.append(self.runner.scheduler.stats())
        self.runner.now_s += self.seconds
        return StepResult(tokens=self.tokens)


def step_s(tokens: int, context: int) -> float:
    return 0.01 + 0.0013 * tokens + 3e-7 * context


def make_world(**given: Any) -> tuple[World, Seeds]:
    seeds = Seeds()
    world = World(runner=seeds, clock=seeds.clock, overlap_schedule=False, **given)
    seeds.scheduler = world.scheduler
    return world, seeds


def take_in(stride: Stride, seeds: Seeds, until: int) -> None:
    """The steps before number `until`, with the tokens and times that `Seeds` gives them."""
    seconds = []
    contexts = stride.prompt_contexts(until - stride.taken_in)
    decode_context = stride.decode_context
    for number in range(until - stride.taken_in):
        context = decode_context + (contexts[number] if contexts else 0)
        start_s = seeds.now_s
        seeds.now_s += step_s(stride.prompt_tokens + len(stride.reqs), context)
        seconds.append(seeds.now_s - start_s)
        decode_context += len(stride.reqs)
    stride.take_in(until, [req.sampling.seed for req in stride.reqs], seconds)


def image(scheduler: Scheduler) -> list[object]:
    """Everything that a scheduler refers to, field by field; repeated objects as numbers."""
    found: list[object] = []
    numbers: dict[int, int] = {}
    keep: list[object] = []  # so that no id is given twice
    todo: list[object] = [scheduler]
    while todo:
        each = todo.pop()
        if id(each) in numbers:
            found.append(("again", numbers[id(each)]))
        elif isinstance(each, np.ndarray):
            found.append((each.dtype, each.shape, each.tobytes()))
        elif isinstance(each, dict):
            found.append(("dict", len(each)))
            todo += [part for pair in each.items() for part in pair]
        elif isinstance(each, (list, tuple, set, deque)):
            found.append((type(each), len(each)))
            todo += sorted(each, key=rank) if isinstance(each, set) else each
        elif type(each).__module__.startswith("pando_worker.") and not callable(each):
            numbers[id(each)] = len(numbers)
            keep.append(each)
            names = fields_of(each)
            found.append((type(each), names))
            todo += [value_of(each, name) for name in names]
        elif isinstance(each, (int, float, str, bytes, type(None))):
            found.append(each)
    return found


def rank(member: object) -> tuple[int, ...]:
    """A place for a member of a set: sets of objects are ordered by their addresses."""
    return (member.place,) if isinstance(member, Req) else (hash(member),)


def fields_of(thing: object) -> list[str]:
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    own = list(getattr(thing, "__dict__", {}))
    # The time of the last result only matters while a step is in flight; batches are rebuilt.
    left_out = ("_taken_in_at", "_events", "_batches", "_arrays")
    return [name for name in slots + own if name not in left_out]


def value_of(thing: object, name: str) -> object:
    if isinstance(thing, Req) and name == "ids":
        return thing.tokens(thing.num_known)  # memory behind it is undefined
    value = getattr(thing, name)
    if isinstance(thing, Decodes) and isinstance(value, np.ndarray):
        return value[: len(thing)]
    return value


@dataclass(frozen=True)
class Asked:
    prompt: int  # tokens
    shared: int  # leading tokens that all prompts have
    output: int
    gap: int  # steps until the next


asked_for = st.builds(
    Asked,
    prompt=st.integers(1, 60) | st.integers(60, 190),
    shared=st.integers(0, 190),
    output=st.integers(1, 120),
    gap=st.integers(0, 60),
)


@settings(max_examples=examples(50))
@given(
    asked=st.lists(asked_for, min_size=1, max_size=8),
    capacity=st.sampled_from([200, 320, 1000]),
    page_size=st.sampled_from([1, 2, 4]),
    ratio=st.sampled_from([0.05, 0.7]),
    batching=st.sampled_from(["decode-first", "prefill-first"]),
    policy=st.sampled_from(["lpm", "hrrn", "dfs-weight", "fcfs"]),
    radix_cache=st.booleans(),
    host_tokens=st.sampled_from([0, 64, 400]),
    host_write=st.sampled_from(["write-back", "write-through-selective"]),
    parts=st.integers(0, 2**32),
)
@example(  # both compute the same pages, and the second frees its own
    asked=[Asked(12, shared=12, output=60, gap=0), Asked(190, shared=12, output=9, gap=0)],
    capacity=1000,
    page_size=4,
    ratio=0.7,
    batching="decode-first",
    policy="lpm",
    radix_cache=True,
    host_tokens=0,
    host_write="write-back",
    parts=0,
)
def test_a_stride_is_its_single_steps(
    asked: list[Asked],
    capacity: int,
    page_size: int,
    ratio: float,
    batching: str,
    policy: str,
    radix_cache: bool,
    host_tokens: int,
    host_write: str,
    parts: int,
) -> None:
    given: dict[str, object] = {
        "pages": capacity // page_size,
        "page_size": page_size,
        "max_running": 4,
        "max_request_tokens": capacity,
        "chunked_prefill_size": 16,
        "new_token_ratio": ratio,
        "batching": batching,
        "schedule_policy": policy,
        "radix_cache": radix_cache,
        "host_pages": host_tokens // page_size,
        "host_write": host_write,
    }
    (strides, of_strides), (singles, of_singles) = make_world(**given), make_world(**given)
    todo, wait, rng = list(enumerate(asked)), 0, random.Random(parts)
    while todo or not singles.scheduler.is_idle:
        while todo and wait <= 0:
            number, each = todo.pop(0)
            own = range(1000 * (number + 1), 1000 * (number + 1) + each.prompt)
            prompt = [*range(each.shared), *own][: each.prompt]
            for world in strides, singles:
                world.send(f"{number}", prompt, each.output, seed=500_000 + number)
            wait = each.gap
        stride = strides.scheduler.stride(MOST)
        if stride is None:
            strides.step()
            singles.step()
            wait -= 1
            continue
        event(f"with {len(stride.prompts)} prompts")
        wait -= go_both(stride, of_strides, singles, of_singles, rng)
        assert image(strides.scheduler) == image(singles.scheduler)
        assert of_strides.now_s == of_singles.now_s
        if singles.scheduler.is_idle:
            wait = 0
    assert strides.finish == singles.finish


def go_both(
    stride: Stride, of_strides: Seeds, singles: World, of_singles: Seeds, rng: random.Random
) -> int:
    """Runs a part of a stride, in two pieces, and as many single steps; between the pieces one more
    step is launched. Returns their number."""
    first = rng.randrange(stride.steps)
    last = rng.randint(first + 1, stride.steps)
    assert of_strides.scheduler is not None
    assert of_singles.scheduler is not None
    if first:
        take_in(stride, of_strides, first)
    for _ in range(first):
        singles.step()
    assert image(of_strides.scheduler) == image(of_singles.scheduler)
    stride.launch(first + 1)
    as_launched = of_strides.scheduler.stats()
    of_singles.launched.clear()
    for _ in range(last - first):
        singles.step()
    assert as_launched == of_singles.launched[0]
    take_in(stride, of_strides, last)
    return last


def decoding(**given: Any) -> World:
    """One request that decodes, with 100 tokens to come."""
    world, _ = make_world(**given)
    world.send("a", range(10), 101)
    world.step()
    return world


def test_steps_to_the_last_but_one_are_a_stride() -> None:
    world = decoding()
    for most, steps in (2, 2), (1000, 99):
        stride = world.scheduler.stride(most)
        assert stride is not None
        assert stride.steps == steps


def test_steps_that_compute_nothing_but_one_prompt_are_a_stride() -> None:
    world, _ = make_world(chunked_prefill_size=12, pages=100)
    world.send("a", range(130))
    world.send("b", range(1000, 1070))
    world.step()
    stride = world.scheduler.stride(MOST)
    assert stride is not None
    # 118 tokens are left: the tenth step from here has 10 of them, and room for the other.
    assert (stride.steps, stride.prompt_tokens, stride.reqs) == (9, 12, ())


@pytest.mark.parametrize(
    ("host_pages", "steps"),
    [(0, 99), (40, 49)],  # half of 99: the free pages are enough for 50
    ids=["without a host tier", "with a host tier"],
)
def test_a_stride_evicts_pages_unless_they_are_copied_to_the_host(
    host_pages: int, steps: int
) -> None:
    world, _ = make_world(pages=40, page_size=4, host_pages=host_pages)
    world.send("cached", range(1000, 1100), 1)
    world.run()
    world.send("a", range(10), 101)
    world.step()
    stride = world.scheduler.stride(1000)
    assert stride is not None
    assert world.kv.allocator.num_free == 12  # 25 pages are cached, three are taken
    assert stride.steps == steps


def test_steps_that_compute_two_prompts_are_a_stride() -> None:
    world, _ = make_world(chunked_prefill_size=16, pages=100)
    world.send("long", range(130))
    world.step()
    world.send("short", range(1000, 1040))
    world.step()
    assert len(world.scheduler.planner.prefilling) == 2
    stride = world.scheduler.stride(MOST)
    assert stride is not None
    # Each gets half of a step; the shorter one has 32 tokens left, and is completed in the fourth.
    of_each = [(chunks.req.rid, chunks.tokens) for chunks in stride.prompts]
    assert of_each == [("long", 8), ("short", 8)]
    assert stride.steps == 3


def test_steps_are_a_stride_while_a_waiting_request_does_not_fit() -> None:
    world, _ = make_world(pages=40, page_size=4)
    world.send("a", range(10), 101)
    world.step()
    world.send("b", range(1000, 1100), 40)
    assert world.scheduler.stride(MOST) is None  # it may fit
    world.step()
    assert world.scheduler.planner.waiting
    stride = world.scheduler.stride(MOST)
    assert stride is not None
    assert stride.steps == MOST


@pytest.mark.parametrize(
    "request_of",
    [
        {"stop_token_ids": [3]},
        {"grammar": "even"},
        {"logprobs": LogprobsWanted(top=0)},
        {"deadline_s": 1000.0},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_a_result_may_end_or_change_is_no_stride(request_of: dict[str, Any]) -> None:
    world = decoding()
    world.send("b", range(10), 101, **request_of)
    for _ in range(3):
        world.step()
    assert len(world.scheduler.planner.running) == 2
    assert world.scheduler.stride(MOST) is None


def test_an_embedding_is_no_stride() -> None:
    world, _ = make_world(chunked_prefill_size=12, pages=100)
    world.embed("a", range(130), Pooling.MEAN)
    world.scheduler.planner.plan([])
    assert world.scheduler.planner.prefilling
    assert world.scheduler.stride(MOST) is None


def test_what_comes_ends_strides() -> None:
    world = decoding()
    world.abort("a")
    assert world.scheduler.stride(MOST) is None
    world = decoding()
    world.send("b", range(10))
    assert world.scheduler.stride(MOST) is None


def test_with_overlap_there_are_no_strides() -> None:
    world = World()
    world.send("a", range(10), 101)
    world.run(max_steps=1000)
    assert world.scheduler.stride(MOST) is None
    world.send("b", range(10), 101)
    world.step()
    assert world.scheduler.stride(MOST) is None


def test_with_window_pages_there_are_no_strides() -> None:
    assert decoding(window=8, window_pages=20).scheduler.stride(MOST) is None
