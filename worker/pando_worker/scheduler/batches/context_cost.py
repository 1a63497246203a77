"""`ContextCost`: estimates from measured steps how much a long context slows a prompt token."""

import math


def attended(start: int, count: int) -> int:
    """The context lengths of `count` prompt tokens from position `start` on, summed."""
    return count * start + count * (count + 1) // 2


class ContextCost:
    """Least squares over the steps with prompts: seconds = a + b · tokens + c · context.

    All steps have equal weight and none is forgotten: b and c depend on the model and its machine,
    not on the load. Decodes in a step are noise. Means and sums of squared differences are updated
    by Welford's method (Technometrics, 1962), which never subtracts sums of large squares.
    """

    __slots__ = (
        "_context",
        "_context_context",
        "_context_seconds",
        "_seconds",
        "_seconds_seconds",
        "_steps",
        "_tokens",
        "_tokens_context",
        "_tokens_seconds",
        "_tokens_tokens",
    )

    def __init__(self) -> None:
        self._steps = 0
        # The means,
        self._tokens = self._context = self._seconds = 0.0
        # and the sums over all steps of the products of the differences from the means.
        self._tokens_tokens = self._tokens_context = self._tokens_seconds = 0.0
        self._context_context = self._context_seconds = self._seconds_seconds = 0.0

    def add(self, tokens: int, context: int, seconds: float) -> None:
        """Add a step with `tokens` prompt tokens, whose `attended` contexts sum to `context`."""
        self._steps += 1
        more_tokens, more_context = tokens - self._tokens, context - self._context
        more_seconds = seconds - self._seconds
        self._tokens += more_tokens / self._steps
        self._context += more_context / self._steps
        self._seconds += more_seconds / self._steps
        off_context, off_seconds = context - self._context, seconds - self._seconds
        self._tokens_tokens += more_tokens * (tokens - self._tokens)
        self._tokens_context += more_tokens * off_context
        self._tokens_seconds += more_tokens * off_seconds
        self._context_context += more_context * off_context
        self._context_seconds += more_context * off_seconds
        self._seconds_seconds += more_seconds * off_seconds

    @property
    def doubling_context(self) -> float:
        """Tokens of context behind which a prompt token takes twice as long as at the start of a
        prompt; 0.0 until context has a measurable cost.

        This is b / c, with c less its standard error, so that few measurements yield no large cost.
        """
        spread = self._tokens_tokens * self._context_context - self._tokens_context**2
        # Steps that differ in only one respect are indistinguishable to the fit.
        if self._steps <= 3 or spread <= 1e-9 * self._tokens_tokens * self._context_context:
            return 0.0
        token_s = (
            self._tokens_seconds * self._context_context
            - self._context_seconds * self._tokens_context
        ) / spread
        context_s = (
            self._context_seconds * self._tokens_tokens
            - self._tokens_seconds * self._tokens_context
        ) / spread
        left = (
            self._seconds_seconds
            - token_s * self._tokens_seconds
            - context_s * self._context_seconds
        )
        variance = max(0.0, left) / (self._steps - 3)
        context_s -= math.sqrt(variance * self._tokens_tokens / spread)
        return token_s / context_s if token_s > 0 and context_s > 0 else 0.0
