"""The trace: prompts of token ids that share beginnings, at times drawn once.

Token ids mean that both sides see the same tokens and the same chunks, whatever the tokenizer.
"""

import json
import random
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from pando_sim.cost.model import CostModel
from pando_worker.scheduler.batches.context_cost import attended

IDS = range(300, 3000)  # ordinary tokens of the demo model
CHUNK_TOKENS = 64  # as the router cuts prompts
SHARED_CHUNKS = range(4, 17)  # of a beginning; ten on average
OWN_TOKENS = (16, 480)  # smallest and largest, of an end
OUTPUT_TOKENS = (8, 48)


@dataclass(frozen=True, slots=True)
class Ask:
    at_s: float
    prompt: list[int]
    output_tokens: int


def make(requests: int, groups: int, seed: int) -> list[Ask]:
    """Poisson arrivals, one a second; each prompt has the beginning of one group and its own end.

    Groups are used unequally: the first four times as often as the last. Lengths are spread, and so
    is the work: if half of the requests needed little and the others much, the median would be one
    or the other by chance.
    """
    rng = random.Random(seed)
    chunks = [rng.choice(SHARED_CHUNKS) for _ in range(groups)]
    shared = [_ids(rng, CHUNK_TOKENS * count) for count in chunks]
    weights = [4.0 ** (1 - group / max(1, groups - 1)) for group in range(groups)]
    asks, at_s = [], 0.0
    for _ in range(requests):
        at_s += rng.expovariate(1.0)
        (begin,) = rng.choices(shared, weights)
        prompt = begin + _ids(rng, rng.randint(*OWN_TOKENS))
        asks.append(Ask(at_s, prompt, rng.randint(*OUTPUT_TOKENS)))
    return asks


def at_rate(asks: list[Ask], per_s: float) -> list[Ask]:
    """The same requests, at `per_s` a second."""
    return [replace(ask, at_s=round(ask.at_s / per_s, 6)) for ask in asks]


def _ids(rng: random.Random, count: int) -> list[int]:
    return rng.choices(IDS, k=count)


def alone_s(asks: list[Ask], cost: CostModel) -> float:
    """The mean time of a request that has a worker for itself and nothing cached there."""

    def one(prompt: int, output: int) -> float:
        prefill_s = cost.step_s(prefill_tokens=prompt, prefill_context=attended(0, prompt))
        return (
            cost.request_s(prompt) + prefill_s + sum(cost.decode_steps(output - 1, 1, prompt + 1))
        )

    return statistics.fmean(one(len(ask.prompt), ask.output_tokens) for ask in asks)


def write(asks: list[Ask], path: Path) -> None:
    """Writes them as a trace that `pando sim` reads."""
    with path.open("w") as file:
        for ask in asks:
            line = {
                "timestamp": ask.at_s,
                "prompt": ask.prompt,
                "output_tokens": ask.output_tokens,
            }
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
