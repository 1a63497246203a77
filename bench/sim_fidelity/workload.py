"""The trace: prompts of token ids that share beginnings, at times drawn once.

Token ids mean that both sides see the same tokens and the same chunks, whatever the tokenizer.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

IDS = range(300, 3000)  # ordinary tokens of the demo model
CHUNK_TOKENS = 64  # as the router cuts prompts
SHARED_CHUNKS = range(4, 17)  # of a beginning; ten in the mean
OWN_TOKENS = (16, 480)  # least and most, of an end
OUTPUT_TOKENS = (8, 48)


@dataclass(frozen=True, slots=True)
class Ask:
    at_s: float
    prompt: list[int]
    output_tokens: int


def make(requests: int, groups: int, per_s: float, seed: int) -> list[Ask]:
    """Poisson arrivals; each prompt has the beginning of one group and an end of its own.

    Groups are wanted unequally: the first four times as often as the last. Lengths are spread, so
    that what is to be computed is, too: where half of the requests need little and the others
    much, a median is the one or the other by chance.
    """
    rng = random.Random(seed)
    chunks = [rng.choice(SHARED_CHUNKS) for _ in range(groups)]
    shared = [_ids(rng, CHUNK_TOKENS * count) for count in chunks]
    weights = [4.0 ** (1 - group / max(1, groups - 1)) for group in range(groups)]
    asks, at_s = [], 0.0
    for _ in range(requests):
        at_s += rng.expovariate(per_s)
        (begin,) = rng.choices(shared, weights)
        prompt = begin + _ids(rng, rng.randint(*OWN_TOKENS))
        asks.append(Ask(round(at_s, 6), prompt, rng.randint(*OUTPUT_TOKENS)))
    return asks


def _ids(rng: random.Random, count: int) -> list[int]:
    return rng.choices(IDS, k=count)


def write(asks: list[Ask], path: Path) -> None:
    """As a trace that `pando sim` reads."""
    with path.open("w") as file:
        for ask in asks:
            line = {
                "timestamp": ask.at_s,
                "prompt": ask.prompt,
                "output_tokens": ask.output_tokens,
            }
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
