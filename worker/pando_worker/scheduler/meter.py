"""What the scheduler counts and measures of its own work, for heartbeats, metrics and its log."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from pando_worker.rates import Rate
from pando_worker.scheduler.context_cost import ContextCost

BATCH_SIZES = tuple(2**power for power in range(10))


@dataclass(slots=True)
class Meter:
    """Counters only grow."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    output_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    retracted: int = 0
    rows: int = 0  # requests in all steps together
    batch_sizes: list[int] = field(default_factory=lambda: [0] * (len(BATCH_SIZES) + 1))
    prefill_rate: Rate = field(default_factory=Rate)
    prefill_context_rate: Rate = field(default_factory=Rate)
    context_cost: ContextCost = field(default_factory=ContextCost)
    decode_rate: Rate = field(default_factory=Rate)
    release_rate: Rate = field(default_factory=Rate)

    def add_step(
        self,
        *,
        rows: int,
        prefill_tokens: int,
        prefill_context: int,
        decodes: int,
        released: int,
        seconds: float,
    ) -> None:
        """A step's result is in, `seconds` after it began or after the one before it.

        `prefill_context` is what its prompt tokens saw, `attended`.
        """
        self.steps += 1
        self.rows += rows
        self.batch_sizes[bisect_left(BATCH_SIZES, rows)] += 1
        if prefill_tokens:
            self._add_prefill(prefill_tokens, prefill_context, seconds)
        if decodes:
            self.decode_rate.add(decodes, seconds)
        self.release_rate.add(released, seconds)

    def add_steps(
        self,
        *,
        decodes: int,
        prefill_tokens: int,
        prefill_contexts: Sequence[int],
        seconds: Sequence[float],
    ) -> None:
        """As `add_step` for each of these steps of the same requests, with the tokens that came of
        it; none of them ends, and of one prompt each step computes so many tokens, or none."""
        rows = decodes + (prefill_tokens > 0)
        self.steps += len(seconds)
        self.rows += rows * len(seconds)
        self.batch_sizes[bisect_left(BATCH_SIZES, rows)] += len(seconds)
        self.output_tokens += decodes * len(seconds)
        kept = self.decode_rate.shares_kept(seconds)  # all forget alike
        if prefill_tokens:
            for context, each_s in zip(prefill_contexts, seconds, strict=True):
                self._add_prefill(prefill_tokens, context, each_s)
        if decodes:
            self.decode_rate.add_each(decodes, seconds, kept)
        self.release_rate.add_each(0, seconds, kept)

    def _add_prefill(self, tokens: int, context: int, seconds: float) -> None:
        self.prefill_rate.add(tokens, seconds)
        self.prefill_context_rate.add(context, seconds)
        self.context_cost.add(tokens, context, seconds)
