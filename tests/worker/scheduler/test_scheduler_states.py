"""Any sequence of requests, aborts, steps and flushes, in a pool that is far too small."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_worker.messages import FinishReason
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World


class SchedulerMachine(RuleBasedStateMachine):
    world: World

    @initialize(
        page_size=st.sampled_from([1, 2, 4]),
        pages=st.integers(6, 16),
        max_running=st.integers(1, 6),
        ratio=st.sampled_from([0.01, 0.5, 1.0]),
        policy=st.sampled_from(["lpm", "fcfs"]),
        radix_cache=st.booleans(),
    )
    def start(
        self,
        page_size: int,
        pages: int,
        max_running: int,
        ratio: float,
        policy: str,
        radix_cache: bool,
    ) -> None:
        self.world = World(
            pages=pages * 4 // page_size,
            page_size=page_size,
            max_running=max_running,
            chunked_prefill_size=12,
            max_queued_requests=8,
            new_token_ratio=ratio,
            schedule_policy=policy,
            radix_cache=radix_cache,
        )
        self.sent: dict[str, tuple[list[int], int]] = {}

    # Prompts that share prefixes: runs of the same few tokens.
    @rule(
        runs=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6)), min_size=1, max_size=5),
        max_new_tokens=st.integers(1, 16),
    )
    def send(self, runs: list[tuple[int, int]], max_new_tokens: int) -> None:
        rid = f"r{len(self.sent)}"
        prompt = [token for token, length in runs for _ in range(length)]
        self.sent[rid] = (prompt, max_new_tokens)
        self.world.send(rid, prompt, max_new_tokens)

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
        for rid, (prompt, _) in getattr(self, "sent", {}).items():
            produced = self.world.tokens[rid]
            assert produced == expected_tokens(prompt, len(produced))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.run()
        for rid, (_, max_new_tokens) in self.sent.items():
            if rid in self.world.rejected:
                continue
            if self.world.finish[rid] is not FinishReason.ABORT:
                assert len(self.world.tokens[rid]) == max_new_tokens
        self.world.kv.check_idle()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
