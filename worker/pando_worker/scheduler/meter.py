"""What the scheduler counts and measures of its own work, for heartbeats, metrics and its log."""

from dataclasses import dataclass, field

from pando_worker.scheduler.rates import Rate


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
    last_batch: int = 0  # requests in the last step
    prefill_rate: Rate = field(default_factory=Rate)
    decode_rate: Rate = field(default_factory=Rate)
    release_rate: Rate = field(default_factory=Rate)

    def add_step(self, *, prefill_tokens: int, decodes: int, released: int, seconds: float) -> None:
        """A step's result is in, `seconds` after it began or after the one before it."""
        self.steps += 1
        if prefill_tokens:
            self.prefill_rate.add(prefill_tokens, seconds)
        if decodes:
            self.decode_rate.add(decodes, seconds)
        self.release_rate.add(released, seconds)
