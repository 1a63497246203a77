"""Any sequence of requests with sources and without, aborts, steps and flushes, in a pool that is
far too small: each token depends on every page of a request and of its source.

A worker refuses requests without a source if its model has an encoder. That check is left out here,
since the pool must add up for both kinds beside each other."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_worker.memory.namespace import namespace
from pando_worker.messages import Align, Embed, FinishReason, Generate, Verify
from pando_worker.policies.schedule import SCHEDULE_POLICIES
from pando_worker.pools import SourceForm
from pando_worker.scheduler import arrivals
from pando_worker.scheduler.sources import read_source, source_misfit
from tests.examples import examples
from tests.worker.encoder_decoder.checkpoints import sent
from tests.worker.scheduler.hash_model import VOCAB, expected_tokens
from tests.worker.scheduler.world import World

FORM = SourceForm(positions=11, mel_bins=0, vocab_size=VOCAB)
SPACES = [b"", b"", namespace("tenant", None)]


def misfit_of_those_with_sources(
    command: Generate | Embed | Align | Verify, form: SourceForm | None
) -> str | None:
    assert isinstance(command, Generate)
    return source_misfit(command, form) if command.source else None


@dataclass(frozen=True)
class Asked:
    expected: list[int]  # its output unless it is aborted


class SourceMachine(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.without_check = pytest.MonkeyPatch()
        self.without_check.setattr(arrivals, "source_misfit", misfit_of_those_with_sources)

    @initialize(
        page_size=st.sampled_from([1, 2, 4]),
        pages=st.integers(6, 12),
        max_running=st.integers(1, 6),
        ratio=st.sampled_from([0.01, 0.5, 1.0]),
        policy=st.sampled_from([*SCHEDULE_POLICIES]),
        batching=st.sampled_from(["decode-first", "prefill-first"]),
        overlap=st.booleans(),
        radix_cache=st.booleans(),
        host_tokens=st.sampled_from([0, 8, 32, 128]),
        host_write=st.sampled_from(["write-back", "write-through-selective"]),
        encoded=st.sampled_from([1, 12, 40]),
    )
    def start(
        self,
        page_size: int,
        pages: int,
        max_running: int,
        ratio: float,
        policy: str,
        batching: str,
        overlap: bool,
        radix_cache: bool,
        host_tokens: int,
        host_write: str,
        encoded: int,
    ) -> None:
        self.world = World(
            pages=pages * 4 // page_size,
            page_size=page_size,
            max_running=max_running,
            chunked_prefill_size=12,
            max_queued_requests=8,
            new_token_ratio=ratio,
            schedule_policy=policy,
            batching=batching,
            overlap_schedule=overlap,
            max_passed_over=2,
            radix_cache=radix_cache,
            host_pages=host_tokens // page_size,
            host_write=host_write,
            encoder_tokens_per_step=encoded,
            source=FORM,
        )
        self.asked: dict[str, Asked] = {}

    @rule(
        runs=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), min_size=1, max_size=3),
        source=st.sampled_from([0, 1, 2, None]),
        max_new_tokens=st.integers(1, 10),
        copies=st.integers(1, 3),
        priority=st.integers(-1, 1),
        space=st.sampled_from(SPACES),
    )
    def send(
        self,
        runs: list[tuple[int, int]],
        source: int | None,
        max_new_tokens: int,
        copies: int,
        priority: int,
        space: bytes,
    ) -> None:
        prompt = [token for token, length in runs for _ in range(length)]
        length = 0 if source is None else 4 + 2 * source
        ids = np.arange(length, dtype=np.int32) + (source or 0)
        expected = expected_tokens(prompt, max_new_tokens, source=ids.tolist())
        for _ in range(copies):
            rid = f"r{len(self.asked)}"
            self.asked[rid] = Asked(expected)
            self.world.send(
                rid,
                prompt,
                max_new_tokens,
                priority=priority,
                namespace=space,
                source=None if source is None else sent(ids),
            )

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.world.abort(data.draw(st.sampled_from(sorted(self.asked))))

    @rule()
    def flush(self) -> None:
        assert self.world.flush() == self.world.scheduler.is_idle

    @invariant()
    def every_page_has_one_owner(self) -> None:
        if hasattr(self, "world"):
            self.world.check_ownership()

    @invariant()
    def tokens_are_those_of_prompt_and_source(self) -> None:
        for rid, asked in getattr(self, "asked", {}).items():
            produced = self.world.tokens[rid]
            assert produced == asked.expected[: len(produced)]

    def teardown(self) -> None:
        self.without_check.undo()
        if not hasattr(self, "world"):
            return
        self.world.run()
        for rid, asked in self.asked.items():
            if rid not in self.world.rejected and self.world.finish[rid] is not FinishReason.ABORT:
                assert self.world.tokens[rid] == asked.expected
        self.world.kv.check_idle()


def test_a_source_of_which_a_part_was_evicted_is_encoded_again() -> None:
    world = World(pages=8, page_size=4, new_token_ratio=0.01, watermark=0.0, source=FORM)
    long, short = np.arange(10, dtype=np.int32), np.arange(3, 7, dtype=np.int32)
    asked = [("first", long, [1, 2], 3), ("other", short, [5] * 8, 10), ("again", long, [1, 2], 3)]
    sources = world.kv.sources
    assert sources is not None
    for rid, ids, prompt, count in asked:
        span = read_source(sent(long), b"", 4)
        cached = world.kv.prefixes.pages(span.key, span.namespace)
        assert cached == {"first": 0, "other": 3, "again": 2}[rid]
        world.send(rid, prompt, count, source=sent(ids))
        world.run()
        assert world.tokens[rid] == expected_tokens(prompt, count, source=ids.tolist())
    assert sources.encoded_total == 3


def test_a_prompt_that_takes_pages_leaves_the_host_its_requests_source() -> None:
    """The third request's source is only on the host, whose room the pages that its prompt evicts
    would take."""
    world = World(pages=19, page_size=1, host_pages=8, new_token_ratio=0.01, source=FORM)
    first, other = np.arange(6, dtype=np.int32), np.arange(10, 18, dtype=np.int32)
    for rid, ids in (("first", first), ("other", other), ("again", first)):
        world.send(rid, [1] * 6, 1, source=sent(ids))
        world.run()
        assert world.tokens[rid] == expected_tokens([1] * 6, 1, source=ids.tolist())
    assert world.kv.sources is not None
    assert world.kv.sources.encoded_total == 2  # the third was loaded
    world.kv.check_idle()


def test_pages_that_the_encoder_has_yet_to_fill_are_not_stored() -> None:
    """Requests admitted in one step hit the source that this step encodes. If their hits stored it
    on the host, the copy would run before the encoder."""
    world = World(
        pages=16,
        page_size=1,
        host_pages=6,
        host_write="write-through-selective",
        max_running=3,
        new_token_ratio=0.01,
        source=FORM,
    )
    first, other = np.arange(20, 24, dtype=np.int32), np.arange(6, dtype=np.int32)
    for turn, (copies, prompt, ids) in enumerate(
        [(3, [1, 1, 1], first), (2, [1, 1, 1], other), (2, [1], first)]
    ):
        for copy in range(copies):
            world.send(f"{turn}{copy}", prompt, 2, source=sent(ids))
        world.run()
        for copy in range(copies):
            assert world.tokens[f"{turn}{copy}"] == expected_tokens(prompt, 2, source=ids.tolist())


TestSources = SourceMachine.TestCase
TestSources.settings = settings(max_examples=examples(60), stateful_step_count=25)
