"""`ContextCost`: how much longer a prompt token takes behind a long context, as the steps tell."""

import math


def attended(start: int, count: int) -> int:
    """What `count` prompt tokens from position `start` on see, themselves included, summed."""
    return count * start + count * (count + 1) // 2


class ContextCost:
    """Least squares over the steps with prompts: seconds = a + b · tokens + c · context.

    All steps count alike and none is forgotten: b and c are of the model and its machine, whatever
    the load. Decodes in a step are noise to it. Means and sums of squared differences are kept by
    Welford's update (Technometrics, 1962), so that sums of large squares are never subtracted.
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
        # Means,
        self._tokens = self._context = self._seconds = 0.0
        # and sums over the steps of products of the differences from them.
        self._tokens_tokens = self._tokens_context = self._tokens_seconds = 0.0
        self._context_context = self._context_seconds = self._seconds_seconds = 0.0

    def add(self, tokens: int, context: int, seconds: float) -> None:
        """A step computed so many prompt tokens, which saw `context` in sum (`attended`)."""
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
        prompt; 0.0 until context is known to cost anything.

        That is b / c, with c less its standard error: what little is known says little.
        """
        spread = self._tokens_tokens * self._context_context - self._tokens_context**2
        # Of steps that differ in one thing only, none can be told from the other.
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
