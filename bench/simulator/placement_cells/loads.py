"""What a fleet could do without caches, and so how fast a trace must be played for a load.

A request uses one replica's time for the steps of its prompt, in chunks, and for what each token of
its answer adds to steps that others share. At 100 % load a fleet gets as many requests a second as
its replicas have time for if no prompt were ever cached. With caches it has time left, so a load
above 100 % may be served.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pando_sim.cost.model import CostModel
from pando_sim.request import Request
from pando_worker.scheduler.batches.context_cost import attended
from pando_worker.settings import WorkerSettings

CHUNK_TOKENS = WorkerSettings.model_construct().chunked_prefill_size


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a trace, as recorded."""

    requests_per_s: float
    seconds_per_request: float  # of one replica

    def speed(self, load: float, replicas: int) -> float:
        """The speed at which the trace loads `replicas` replicas by `load`."""
        return load * replicas / (self.requests_per_s * self.seconds_per_request)


def demand(requests: Iterable[Request], cost: CostModel) -> Demand:
    """Raises ValueError if there are fewer than two requests, which have no rate."""
    count, last_s, seconds = 0, 0.0, 0.0
    for request in requests:
        count, last_s = count + 1, request.at_s
        prompt = request.prompt.num_tokens
        seconds += prompt_s(prompt, cost) + answer_s(prompt, request.output_tokens, cost)
    if not last_s:
        raise ValueError(f"{count} requests at one moment have no rate")
    return Demand((count - 1) / last_s, seconds / count)


def prompt_s(tokens: int, cost: CostModel) -> float:
    """The time of steps with nothing else in them."""
    chunks = (min(CHUNK_TOKENS, tokens - start) for start in range(0, tokens, CHUNK_TOKENS))
    return sum(
        cost.step_s(prefill_tokens=chunk, prefill_context=attended(number * CHUNK_TOKENS, chunk))
        for number, chunk in enumerate(chunks)
    )


def answer_s(prompt_tokens: int, output_tokens: int, cost: CostModel) -> float:
    """The time that an answer's tokens add to steps with full chunks; the first adds nothing."""
    steps = output_tokens - 1
    context = steps * prompt_tokens + steps * (steps + 1) // 2
    chunk = cost.step_s(prefill_tokens=CHUNK_TOKENS)
    return cost.step_s(prefill_tokens=CHUNK_TOKENS, decodes=steps, decode_context=context) - chunk
