"""Child spans of a request's span: each choice's queue, prefill and decode.

They are written when they end, from times that are measured anyway.
"""

from time import time_ns

from pando_fleet.traces import RequestSpan


def choice_of(request: RequestSpan | None) -> "ChoiceTrace | None":
    """The trace of a choice that is sent to the scheduler now; None if the request is not
    traced."""
    return ChoiceTrace(request) if request is not None and request.kept else None


class ChoiceTrace:
    """One choice of a request: the times of its start, its first token and its end."""

    def __init__(self, request: RequestSpan) -> None:
        self._request = request
        self._sent_ns = time_ns()
        self._first_ns = 0

    def first_token(self, queue_s: float | None, prompt_tokens: int, cached_tokens: int) -> None:
        """`queue_s`: seconds in the scheduler's queue, counted from the request's sending."""
        self._first_ns = time_ns()
        begun_ns = min(self._sent_ns + int((queue_s or 0.0) * 1e9), self._first_ns)
        self._part("queue", self._sent_ns, begun_ns)
        self._part(
            "prefill",
            begun_ns,
            self._first_ns,
            {"pando.prompt_tokens": prompt_tokens, "pando.cached_tokens": cached_tokens},
        )
        self._request.span.add_event("first token", timestamp=self._first_ns)

    def finish(self, output_tokens: int, reason: str) -> None:
        attributes: dict[str, str | int] = {
            "pando.output_tokens": output_tokens,
            "pando.finish_reason": reason,
        }
        self._part("decode", self._first_ns or self._sent_ns, time_ns(), attributes)

    def _part(
        self,
        name: str,
        begun_ns: int,
        ended_ns: int,
        attributes: dict[str, str | int] | None = None,
    ) -> None:
        span = self._request.child(name, start_time=begun_ns, attributes=attributes)
        span.end(ended_ns)
