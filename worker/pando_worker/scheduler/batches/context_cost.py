"""`ContextCost`: estimates from measured steps how much a long context slows a prompt token."""

import math


def attended(start: int, count: int) -> int:
    """The context lengths of `count` prompt tokens from position `start` on, summed."""
    return count * start + count * (count + 1) // 2


class ContextCost:
    """Least squares over the steps with prompts: seconds = a + b · tokens + c · context.

    No step is forgotten: b and c depend on the model and its machine, not on the load. Decodes in a
    step are noise. A step's weight is 1 / tokens, since the times of longer steps vary more. Means
    and sums of squared differences are updated by Welford's method (Technometrics, 1962), with
    West's weights (CACM, 1979), which never subtracts sums of large squares.
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
        "_weight",
    )

    def __init__(self) -> None:
        self._steps = 0
        self._weight = 0.0  # of all steps
        # The means,
        self._tokens = self._context = self._seconds = 0.0
        # and the sums over all steps of the weighted products of the differences from the means.
        self._tokens_tokens = self._tokens_context = self._tokens_seconds = 0.0
        self._context_context = self._context_seconds = self._seconds_seconds = 0.0

    def add(self, tokens: int, context: int, seconds: float) -> None:
        """Add a step with `tokens` prompt tokens, whose `attended` contexts sum to `context`."""
        weight = 1 / tokens
        self._steps += 1
        self._weight += weight
        share = weight / self._weight
        more_tokens, more_context = tokens - self._tokens, context - self._context
        more_seconds = seconds - self._seconds
        self._tokens += share * more_tokens
        self._context += share * more_context
        self._seconds += share * more_seconds
        off_context, off_seconds = context - self._context, seconds - self._seconds
        self._tokens_tokens += weight * more_tokens * (tokens - self._tokens)
        self._tokens_context += weight * more_tokens * off_context
        self._tokens_seconds += weight * more_tokens * off_seconds
        self._context_context += weight * more_context * off_context
        self._context_seconds += weight * more_context * off_seconds
        self._seconds_seconds += weight * more_seconds * off_seconds

    @property
    def doubling_context(self) -> float:
        """Tokens of context behind which a prompt token takes twice as long as at the start of a
        prompt; 0.0 until context has a measurable cost.

        This is the largest b / c within a standard error of the measured one, so that few or
        similar steps yield no large cost.
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
        variance = max(0.0, left) / (self._steps - 3) / spread
        return _largest_ratio(
            token_s,
            context_s,
            variance * self._context_context,
            variance * self._tokens_tokens,
            -variance * self._tokens_context,
        )


def _largest_ratio(b: float, c: float, bb: float, cc: float, bc: float) -> float:
    """The largest b / c within a standard error, by Fieller's theorem (JRSS B, 1954); 0.0 if it has
    no bound, or b is not positive.

    Each ratio r with (b - r · c)² <= bb - 2 · r · bc + r² · cc is within it. An error of c alone
    would not do: where steps are similar, b is as uncertain as c, and too low when c is too high.

    Args:
        bb, cc, bc: the variances of b and c, and their covariance.
    """
    bounded = c * c - cc
    if b <= 0 or c <= 0 or bounded <= 0:
        return 0.0
    root = b * b * cc + c * c * bb - 2 * b * c * bc + bc * bc - bb * cc
    return (b * c - bc + math.sqrt(max(0.0, root))) / bounded
