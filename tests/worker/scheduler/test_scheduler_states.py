"""Any sequence of requests, aborts, steps and flushes, in a pool that is far too small."""

from dataclasses import dataclass
from itertools import takewhile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_worker.memory.namespace import namespace
from pando_worker.messages import FinishReason
from pando_worker.policies.eviction import EVICTION_POLICIES
from pando_worker.policies.schedule import SCHEDULE_POLICIES
from tests.examples import examples
from tests.worker.scheduler.hash_model import expected_tokens, next_allowed
from tests.worker.scheduler.world import World

SPACES = [b"", b"", namespace("tenant", None), namespace("tenant", "own")]


class SchedulerMachine(RuleBasedStateMachine):
    world: World

    @initialize(
        page_size=st.sampled_from([1, 2, 4]),
        pages=st.integers(6, 16),
        max_running=st.integers(1, 6),
        ratio=st.sampled_from([0.01, 0.5, 1.0]),
        policy=st.sampled_from([*SCHEDULE_POLICIES]),
        batching=st.sampled_from(["decode-first", "prefill-first"]),
        overlap=st.booleans(),
        radix_cache=st.booleans(),
        eviction_policy=st.sampled_from([*EVICTION_POLICIES]),
        host_tokens=st.sampled_from([0, 8, 32, 128]),
        host_window_tokens=st.sampled_from([4, 12, 64]),
        host_write=st.sampled_from(["write-back", "write-through-selective"]),
        window=st.sampled_from([0, 1, 3, 6, 13]),
        spare_window_pages=st.integers(0, 12),
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
        eviction_policy: str,
        host_tokens: int,
        host_window_tokens: int,
        host_write: str,
        window: int,
        spare_window_pages: int,
    ) -> None:
        # At least what a request needs plus one page; chunks are then shorter.
        least = -(-(window - 1) // page_size) + 2
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
            eviction_policy=eviction_policy,
            host_pages=host_tokens // page_size,
            host_window_pages=host_window_tokens // page_size if window else 0,
            host_write=host_write,
            window=window,
            window_pages=least + spare_window_pages if window else 0,
        )
        self.window = window
        self.sent: dict[str, Sent] = {}

    # Prompts that share prefixes: runs of the same few tokens.
    @rule(
        runs=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), min_size=1, max_size=5),
        max_new_tokens=st.integers(1, 16),
        copies=st.integers(1, 3),
        grammar=st.sampled_from([None, None, "even", "2:5 6 7 8 9 …"]),
        priority=st.integers(-1, 1),
        space=st.sampled_from(SPACES),
        stops=st.booleans(),
    )
    def send(
        self,
        runs: list[tuple[int, int]],
        max_new_tokens: int,
        copies: int,
        grammar: str | None,
        priority: int,
        space: bytes,
        stops: bool,
    ) -> None:
        prompt = [token for token, length in runs for _ in range(length)]
        expected = expected_output(prompt, max_new_tokens, grammar, self.window)
        stop = [expected[len(expected) // 2]] if stops else []
        if stop:
            expected = expected[: expected.index(stop[0]) + 1]
        for _ in range(copies):
            rid = f"r{len(self.sent)}"
            self.sent[rid] = Sent(prompt, expected, space)
            self.world.send(
                rid,
                prompt,
                max_new_tokens,
                stop,
                grammar=grammar,
                priority=priority,
                namespace=space,
            )

    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.world.abort(data.draw(st.sampled_from(sorted(self.sent))))

    @rule()
    def flush(self) -> None:
        assert self.world.flush() == self.world.scheduler.is_idle

    @invariant()
    def every_page_has_one_owner(self) -> None:
        if hasattr(self, "world"):
            self.world.check_ownership()

    @invariant()
    def tokens_are_those_of_the_prompt(self) -> None:
        for rid, sent in getattr(self, "sent", {}).items():
            produced = self.world.tokens[rid]
            assert produced == sent.expected[: len(produced)]

    @invariant()
    def hits_are_no_longer_than_what_the_name_space_was_asked_for(self) -> None:
        for rid, cached in self.world.cached.items() if hasattr(self, "world") else ():
            own = self.sent[rid]
            others = [
                [*sent.prompt, *sent.expected]
                for other, sent in self.sent.items()
                if sent.space == own.space and other != rid
            ]
            assert cached <= max((shared(own.prompt, o) for o in others), default=0)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.run()
        for rid, sent in self.sent.items():
            if rid in self.world.rejected:
                continue
            if self.world.finish[rid] is not FinishReason.ABORT:
                assert self.world.tokens[rid] == sent.expected
        self.world.kv.check_idle()


@dataclass(frozen=True)
class Sent:
    prompt: list[int]
    expected: list[int]  # its output unless it is aborted
    space: bytes


def shared(a: list[int], b: list[int]) -> int:
    """Number of equal leading tokens."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def expected_output(
    prompt: list[int], count: int, grammar: str | None, window: int | None
) -> list[int]:
    """The hash model's tokens, one at a time, under the grammar."""
    produced: list[int] = []
    for index in range(count):
        token = expected_tokens([*prompt, *produced], 1, window)[0]
        if grammar == "even":
            token = next_allowed(token, lambda token: token % 2 == 0)
        elif grammar and 2 <= index < 7:
            token = index + 3
        produced.append(token)
    return produced


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=examples(100), stateful_step_count=30)
