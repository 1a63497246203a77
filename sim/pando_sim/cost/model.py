"""`CostModel`: the time of a step, and of a request outside of steps, on one kind of worker.

A step reads the weights once, however few tokens it has; beyond `free_tokens` the arithmetic takes
longer than that reading (the roofline). Attention is added: prompt tokens multiply with all tokens
that they see, decodes read their cache.

    step_s + token_s · max(0, tokens - free_tokens)                      weights, arithmetic
           + prefill_step_s, if prompts are in it                        no recorded graph
           + prefill_context_s · prefill_context                         attention of prompts
           + decode_row_s · decodes + decode_context_s · decode_context  sampling, streams, cache

All times are whole ticks of 2^-34 s (58 picoseconds), so that sums of them are exact in floats
below 2^19 s, six days: n steps at once take exactly as long as n single ones.
"""

from pando_sim.cost.schema import CostFile, CostModelError

TICKS_PER_S = 2.0**34


def tick(seconds: float) -> float:
    """The nearest whole number of ticks, in seconds."""
    return round(seconds * TICKS_PER_S) / TICKS_PER_S


class CostModel:
    """A `CostFile`, in whole ticks."""

    def __init__(self, file: CostFile) -> None:
        self.file = file
        self._step = file.step
        # A decode's context grows with each step, so only this coefficient must be in ticks.
        self._decode_context_s = tick(file.step.decode_context_s)

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def source(self) -> str:
        """The origin of its numbers, in words."""
        return self.file.source

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers; 0 if the file lacks it."""
        return self.file.kv_bytes_per_token or 0

    @property
    def copy_bytes_per_s(self) -> float:
        """Between the device's and the host's memory. Raises CostModelError if the file lacks what
        a host tier needs."""
        self.check_host_tier()
        return self.file.copy_bytes_per_s or 0.0

    def check_host_tier(self) -> None:
        """Raises CostModelError if the file lacks what a host tier needs."""
        if not self.kv_bytes_per_token or not self.file.copy_bytes_per_s:
            raise CostModelError(
                f"cost model {self.name} has no kv_bytes_per_token or copy_bytes_per_s, which a"
                " host tier needs"
            )

    def request_s(self, prompt_tokens: int) -> float:
        """The HTTP server's part of a request's time to first token; it does not lengthen steps."""
        request = self.file.request
        return tick(request.request_s + request.prompt_token_s * prompt_tokens)

    def step_s(
        self,
        prefill_tokens: int = 0,
        prefill_context: int = 0,
        decodes: int = 0,
        decode_context: int = 0,
    ) -> float:
        """
        Args:
            prefill_tokens: tokens of prompts, or of chunks of them.
            prefill_context: pairs of one of these tokens and one that it sees, including itself
                (`attended` of each row): n tokens behind s others have n·s + n·(n + 1)/2.
            decodes: requests that get their next token.
            decode_context: total tokens of these requests, including the new ones.
        """
        cost = self._step
        seconds = cost.step_s + cost.decode_row_s * decodes
        tokens = prefill_tokens + decodes
        if tokens > cost.free_tokens:
            seconds += cost.token_s * (tokens - cost.free_tokens)
        if prefill_tokens:
            seconds += cost.prefill_step_s + cost.prefill_context_s * prefill_context
        return tick(seconds) + self._decode_context_s * decode_context

    def decode_steps(self, steps: int, decodes: int, decode_context: int) -> list[float]:
        """The durations of `steps` steps of the same decodes, exactly as `step_s` computes them.

        Args:
            decode_context: of the first step; each later one has `decodes` more.
        """
        first = self.step_s(decodes=decodes, decode_context=decode_context)
        growth = self._decode_context_s * decodes
        return [first + growth * step for step in range(steps)]
