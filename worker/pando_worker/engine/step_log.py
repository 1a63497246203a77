"""Logs the worker's load in one line every N steps."""

import logging

from pando_worker.stats import Stats

log = logging.getLogger("pando.worker.scheduler")


class StepLog:
    def __init__(self, every: int, stats: Stats, now: float) -> None:
        """
        Args:
            every: steps between two lines; 0 for none.
            stats: the state before the first step.
            now: the time of that state, in seconds.
        """
        self._every = every
        self._last, self._last_at = stats, now

    def update(self, stats: Stats, now: float) -> None:
        """Log the state if a line is due; `now` in seconds."""
        last, seconds = self._last, now - self._last_at
        if self._every == 0 or stats.steps_total - last.steps_total < self._every:
            return
        prompt = stats.prompt_tokens_total - last.prompt_tokens_total
        cached = stats.cached_prompt_tokens_total - last.cached_prompt_tokens_total
        output = stats.output_tokens_total - last.output_tokens_total
        log.info(
            "%d running, %d waiting, KV pool %.0f %% pinned and %.0f %% cached,"
            " %.0f %% of %d prompt tokens from the cache, %.0f output tokens/s",
            stats.running,
            stats.waiting,
            100 * stats.pinned_tokens / stats.capacity_tokens,
            100 * stats.cached_tokens / stats.capacity_tokens,
            100 * cached / prompt if prompt else 0.0,
            prompt,
            output / seconds if seconds > 0 else 0.0,
        )
        self._last, self._last_at = stats, now
