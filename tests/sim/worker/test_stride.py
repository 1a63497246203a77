"""A replica that takes many steps at once equals one that takes single steps."""

import asyncio
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_sim.spec import WorkerSpec
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import Replica, ReplicaState
from pando_sim.worker.settings import settings_of
from pando_sim.worker.stay import Stay
from pando_worker.messages import Generate, SamplingParams
from tests.examples import examples
from tests.sim.fleet.costs import LinearCost


@dataclass(frozen=True)
class Asked:
    at_s: float
    prompt: int  # tokens
    shared: int  # leading tokens that all prompts have
    output: int


@dataclass
class Seen:
    """Everything that a replica did, and its states."""

    told: list[tuple[str, str, float]] = field(default_factory=list)
    stays: list[tuple[int, int, float, float, float]] = field(default_factory=list)
    looks: list[object] = field(default_factory=list)


@dataclass(frozen=True)
class Ear:
    seen: Seen
    timeline: Timeline

    def first_byte(self, stay: Stay) -> None:
        self._hear("first", stay)

    def finished(self, stay: Stay) -> None:
        self._hear("finished", stay)

    def refused(self, stay: Stay, status: int) -> None:
        self._hear(f"refused {status}", stay)

    def lost(self, stay: Stay) -> None:
        self._hear("lost", stay)

    def _hear(self, what: str, stay: Stay) -> None:
        self.seen.told.append((what, stay.command.rid, self.timeline.now_s))


def look_at(replica: Replica) -> object:
    stats = replica.stats()
    scheduler = replica.scheduler
    kv, queues = scheduler.kv, scheduler.planner
    admitted = [*queues.prefilling, *queues.running]
    return (
        stats,
        queues.ratio.value,
        replica.model.now_s,
        [req.rid for req in queues.waiting],
        [(req.rid, req.num_known, req.cached_len, req.num_pages, req.row) for req in admitted],
        [req.ids[: req.num_known].tolist() for req in admitted],
        [kv.rows.pages[req.row, : req.num_pages].tolist() for req in admitted],
        kv.allocator._stack[: kv.allocator.num_free].tolist(),
        kv.cache.pretty_print(),
    )


def live(
    asked: list[Asked],
    looks: list[float],
    kill_s: float | None,
    *,
    strides: bool,
    capacity: int,
    engine: dict[str, object],
    page_size: int,
) -> Seen:
    timeline, seen = Timeline(), Seen()
    spec = WorkerSpec(
        cost_model="linear",
        capacity_tokens=capacity,
        context_length=capacity,
        page_size=page_size,
        chunked_prefill_size=16,
        max_running_requests=4,
        engine=engine,
    )
    replica = Replica("r", "1", spec, settings_of(spec), LinearCost(), timeline, strides=strides)
    replica.become(ReplicaState.READY)
    stays: list[Stay] = []
    for number, each in enumerate(asked):
        tokens = np.arange(each.prompt, dtype=np.int32)
        tokens[min(each.shared, each.prompt) :] += 1000 * (number + 1)
        command = Generate(
            rid=f"{number}",
            input_ids=tokens,  # type: ignore[arg-type]
            sampling=SamplingParams(max_new_tokens=each.output, seed=500_000 + number),
        )
        stay = Stay(command, Ear(seen, timeline), each.at_s + 0.0005)
        stays.append(stay)
        timeline.at(each.at_s, partial(replica.submit, stay))
    for at_s in looks:
        timeline.at(at_s, lambda: seen.looks.append(look_at(replica)), looks=True)
    if kill_s is not None:
        timeline.at(kill_s, lambda: seen.told.append(("lost", str(len(replica.kill())), kill_s)))

    async def all_of_it() -> None:
        while timeline.pending and not replica.gone:
            await timeline.step()

    asyncio.run(all_of_it())
    seen.looks.append(look_at(replica) if not replica.gone else None)
    seen.stays = [
        (
            s.tokens,
            s.cached_tokens,
            s.first_s if s.tokens else 0,
            s.last_s if s.tokens else 0,
            s.longest_gap_s,
        )
        for s in stays
    ]
    return seen


requests = st.builds(
    Asked,
    at_s=st.floats(0, 2),
    prompt=st.integers(1, 60) | st.integers(60, 190),
    shared=st.integers(0, 190),
    output=st.integers(1, 120),
)


@settings(max_examples=examples(100))
@given(
    asked=st.lists(requests, min_size=1, max_size=8),
    looks=st.lists(st.floats(0.001, 6), max_size=6),
    kill_s=st.none() | st.floats(0.1, 4),
    capacity=st.sampled_from([200, 320, 2000]),
    ratio=st.sampled_from([0.1, 0.7]),
    batching=st.sampled_from(["decode-first", "prefill-first"]),
    page_size=st.sampled_from([1, 4]),
)
def test_strides_are_single_steps_taken_at_once(
    asked: list[Asked],
    looks: list[float],
    kill_s: float | None,
    capacity: int,
    ratio: float,
    batching: str,
    page_size: int,
) -> None:
    engine: dict[str, object] = {
        "new_token_ratio": ratio,
        "max_queued_requests": 5,
        "batching": batching,
    }
    live_with = partial(
        live, asked, looks, kill_s, capacity=capacity, engine=engine, page_size=page_size
    )
    assert live_with(strides=True) == live_with(strides=False)


def test_a_long_answer_alone_takes_few_events() -> None:
    timeline, seen = Timeline(), Seen()
    spec = WorkerSpec(cost_model="linear", capacity_tokens=4000, context_length=4000)
    replica = Replica("r", "1", spec, settings_of(spec), LinearCost(), timeline)
    replica.become(ReplicaState.READY)
    command = Generate(
        rid="a",
        input_ids=list(range(32)),
        sampling=SamplingParams(max_new_tokens=1000, seed=7),
    )
    stay = Stay(command, Ear(seen, timeline), 0.0)
    replica.submit(stay)

    async def count() -> int:
        events = 0
        while timeline.pending:
            await timeline.step()
            events += 1
        return events

    assert asyncio.run(count()) < 20
    assert stay.tokens == 1000
    cost, now_s = LinearCost(), 0.0
    now_s += cost.step_s(32, 32 * 33 // 2, 0, 0)
    assert stay.first_s == now_s
    for context in range(33, 33 + 999):
        now_s += cost.step_s(0, 0, 1, context)
    assert stay.last_s == now_s
