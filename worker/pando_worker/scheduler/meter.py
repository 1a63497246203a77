"""The scheduler's counters and measured rates, for heartbeats, metrics and its log."""

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

from pando_worker.rates import Rate
from pando_worker.scheduler.batches.context_cost import ContextCost
from pando_worker.stats import BATCH_SIZES, Stats


@dataclass(slots=True)
class Meter:
    counts: Stats = field(default_factory=Stats)  # of this, the counters and what never changes
    prefill_rate: Rate = field(default_factory=Rate)
    prefill_context_rate: Rate = field(default_factory=Rate)
    context_cost: ContextCost = field(default_factory=ContextCost)
    decode_rate: Rate = field(default_factory=Rate)
    release_rate: Rate = field(default_factory=Rate)

    def stats(self) -> Stats:
        """A copy of the counters, with the current rates."""
        stats = copy(self.counts)
        stats.batch_sizes = self.counts.batch_sizes.copy()
        stats.prefill_tokens_per_s = self.prefill_rate.per_second
        stats.prefill_context_per_s = self.prefill_context_rate.per_second
        stats.doubling_context = self.context_cost.doubling_context
        stats.decode_tokens_per_s = self.decode_rate.per_second
        stats.release_tokens_per_s = self.release_rate.per_second
        return stats

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
        """Count a step whose result arrived `seconds` after its start or after the previous result.

        `prefill_context` is the sum of its prompt tokens' context lengths (see `attended`).
        """
        self.counts.steps_total += 1
        self.counts.rows_total += rows
        self.counts.batch_sizes[bisect_left(BATCH_SIZES, rows)] += 1
        if prefill_tokens:
            self._add_prefill(prefill_tokens, prefill_context, seconds)
        if decodes:
            self.counts.decoded_tokens_total += decodes
            self.counts.decode_seconds_total += decodes * seconds
            self.decode_rate.add(decodes, seconds)
        self.release_rate.add(released, seconds)

    def add_steps(
        self,
        *,
        rows: int,
        decodes: int,
        prefill_tokens: int,
        prefill_contexts: Sequence[int],
        seconds: Sequence[float],
    ) -> None:
        """Like `add_step` for each of these steps of the same requests. No request ends in them,
        and each step computes the same number of prompt tokens, possibly 0."""
        self.counts.steps_total += len(seconds)
        self.counts.rows_total += rows * len(seconds)
        self.counts.batch_sizes[bisect_left(BATCH_SIZES, rows)] += len(seconds)
        self.counts.output_tokens_total += decodes * len(seconds)
        kept = self.decode_rate.shares_kept(seconds)  # all rates have the same half-life
        if prefill_tokens:
            for context, each_s in zip(prefill_contexts, seconds, strict=True):
                self._add_prefill(prefill_tokens, context, each_s)
        if decodes:
            self.counts.decoded_tokens_total += decodes * len(seconds)
            for each in seconds:  # in this order, so that the sum is exactly that of single steps
                self.counts.decode_seconds_total += decodes * each
            self.decode_rate.add_each(decodes, seconds, kept)
        self.release_rate.add_each(0, seconds, kept)

    def _add_prefill(self, tokens: int, context: int, seconds: float) -> None:
        self.prefill_rate.add(tokens, seconds)
        self.prefill_context_rate.add(context, seconds)
        self.context_cost.add(tokens, context, seconds)
