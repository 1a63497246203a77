"""Any sequence of loads, replacements, unloads, pins, requests, aborts and steps, with too few
slots and pages: both always add up, and every answer is that of one adapter."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_worker.messages import FinishReason, Pooling
from pando_worker.policies.schedule import SCHEDULE_POLICIES
from tests.examples import examples
from tests.worker.scheduler.hash_model import HashAdapters, expected_embedding, expected_tokens
from tests.worker.scheduler.world import World

PATHS = ["p", "q", "r", "s", "t"]


@dataclass(frozen=True)
class Sent:
    prompt: list[int]
    count: int
    adapter: bytes
    pooling: Pooling | None


class AdapterMachine(RuleBasedStateMachine):
    """Names are the HTTP process's: here a list of loads, each of which may be unloaded once."""

    world: World

    @initialize(
        slots=st.integers(1, 3),
        pages=st.integers(2, 5),
        kv_pages=st.integers(8, 20),
        asks=st.integers(0, 4),
        ranks=st.lists(st.sampled_from([4, 16, 32]), min_size=5, max_size=5),
        policy=st.sampled_from([*SCHEDULE_POLICIES]),
        batching=st.sampled_from(["decode-first", "prefill-first"]),
        overlap=st.booleans(),
        most=st.integers(0, 3),
    )
    def start(
        self,
        slots: int,
        pages: int,
        kv_pages: int,
        asks: int,
        ranks: list[int],
        policy: str,
        batching: str,
        overlap: bool,
        most: int,
    ) -> None:
        files = {
            path: (bytes([number + 1]) * 16, rank)
            for number, (path, rank) in enumerate(zip(PATHS, ranks, strict=True))
        }
        files["p"] = (files["q"][0], files["q"][1])  # the same weights in two places
        self.adapters = HashAdapters(files, asks)
        self.world = World(
            pages=kv_pages,
            max_running=4,
            chunked_prefill_size=12,
            new_token_ratio=0.01,
            adapters=self.adapters,
            adapter_slots=slots,
            adapter_pages=pages,
            schedule_policy=policy,
            batching=batching,
            overlap_schedule=overlap,
            max_passed_over=most,
        )
        self.sent: dict[str, Sent] = {}
        self.calls: dict[int, str] = {}
        self.unloaded: set[int] = set()

    @property
    def loaded(self) -> list[bytes]:
        """The identities that requests may name."""
        there = self.world.identities.items()
        return sorted({each for call, each in there if call not in self.unloaded})

    @rule(path=st.sampled_from(PATHS))
    def load(self, path: str) -> None:
        self.calls[self.world.load_adapter(path)] = path

    @precondition(lambda self: set(self.world.identities) - self.unloaded)
    @rule(data=st.data())
    def unload(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(set(self.world.identities) - self.unloaded)))
        self.unloaded.add(call)
        self.world.unload_adapter(self.world.identities[call])

    @precondition(lambda self: self.loaded)
    @rule(data=st.data(), is_pinned=st.booleans())
    def pin(self, data: st.DataObject, is_pinned: bool) -> None:
        self.world.pin_adapter(data.draw(st.sampled_from(self.loaded)), is_pinned=is_pinned)

    @rule(path=st.sampled_from(PATHS[2:]), number=st.integers(10, 14))
    def replace(self, path: str, number: int) -> None:
        """The files have other weights from now on: what is loaded may have to fail."""
        self.adapters.files[path] = (bytes([number]) * 16, self.adapters.files[path][1])

    @rule(
        runs=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), min_size=1, max_size=4),
        count=st.integers(1, 12),
        copies=st.integers(1, 3),
        pooling=st.sampled_from([None, None, None, *Pooling]),
        data=st.data(),
    )
    def send(
        self,
        runs: list[tuple[int, int]],
        count: int,
        copies: int,
        pooling: Pooling | None,
        data: st.DataObject,
    ) -> None:
        prompt = [token for token, length in runs for _ in range(length)]
        for _ in range(copies):
            adapter = data.draw(st.sampled_from([b"", *self.loaded]))
            rid = f"r{len(self.sent)}"
            self.sent[rid] = Sent(prompt, count, adapter, pooling)
            if pooling:
                self.world.embed(rid, prompt, pooling, adapter)
            else:
                self.world.send(rid, prompt, count, adapter=adapter)

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.world.abort(data.draw(st.sampled_from(sorted(self.sent))))

    @invariant()
    def pages_slots_and_rank_pages_add_up(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.check_ownership()
        served = self.world.scheduler._adapters
        assert served is not None
        slots = served.slots
        places = [slots.place(each) for each in slots]
        kept = [place for each, place in zip(slots, places, strict=True) if not slots.is_idle(each)]
        assert slots.free_slots + slots.evictable_slots + len(kept) == slots.num_slots
        rank_pages = [page for place in places for page in place.pages]
        assert len(rank_pages) + slots.free_pages == slots.num_pages
        assert len(set(rank_pages)) == len(rank_pages)
        numbers = {slots.place(each).slot: each for each in slots}
        for req in self.world.scheduler._open:
            if req.is_admitted:
                assert (req.slot >= 0) == bool(req.adapter)
            if req.slot >= 0:
                assert numbers[req.slot] == req.adapter
                assert slots.is_held(req.adapter)

    @invariant()
    def tokens_are_those_of_the_prompt_and_the_adapter(self) -> None:
        for rid, sent in getattr(self, "sent", {}).items():
            produced = self.world.tokens[rid]
            expected = expected_tokens(sent.prompt, len(produced), adapter=sent.adapter)
            assert produced == expected

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.run()
        for rid, sent in self.sent.items():
            if rid in world.rejected:
                assert world.rejected[rid].status in (400, 404, 502), world.rejected[rid]
            elif sent.pooling and rid in world.embeddings:
                expected = expected_embedding(sent.prompt, sent.pooling, sent.adapter)
                assert world.embeddings[rid] == pytest.approx(expected, abs=1e-6)
            elif world.finish[rid] is not FinishReason.ABORT:
                assert len(world.tokens[rid]) == sent.count
        for call in sorted(set(world.identities) - self.unloaded):
            world.unload_adapter(world.identities[call])
        world.run()
        slots = world.scheduler._adapters
        assert slots is not None
        slots.check_idle()
        assert list(slots.slots) == []
        assert not self.adapters.host
        stats = world.scheduler.stats()
        assert (stats.adapters_waiting, stats.free_adapter_slots) == (0, stats.adapter_slots)
        world.kv.check_idle()


TestAdapters = AdapterMachine.TestCase
TestAdapters.settings = settings(max_examples=examples(100), stateful_step_count=30)
