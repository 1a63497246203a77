"""`SpeechTimes`: when the tokens of a request came, for the worker's metrics."""

import time

from pando_worker.server.metrics import Metrics


class SpeechTimes:
    """Of one request, whose windows may be decoded at once."""

    def __init__(self, metrics: Metrics, received: float) -> None:
        """
        Args:
            received: `time.monotonic()` when the request came in
        """
        self._metrics, self._received = metrics, received
        self._has_begun = False

    def waited(self, queue_s: float) -> None:
        """An order of this request began to run."""
        self._metrics.queue_time.observe(queue_s)

    def came(self, tokens: int, before: float | None) -> float:
        """Some of a window's tokens are here; returns when.

        Args:
            before: when those before them came, in the same window
        """
        now = time.monotonic()
        if not self._has_begun:
            self._has_begun = True
            self._metrics.time_to_first_token.observe(now - self._received)
        if before is not None:
            self._metrics.observe_gaps(now - before, tokens)
        return now

    def verified(self, *, confirmed: bool) -> None:
        """The engine compared an earlier answer with what it would say."""
        self._metrics.drafts.labels("confirmed" if confirmed else "refuted").inc()

    def ended(self, tokens: int) -> None:
        """All windows are decoded, into so many tokens."""
        self._metrics.request_duration.observe(time.monotonic() - self._received)
        self._metrics.request_output_tokens.observe(tokens)
