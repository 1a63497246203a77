"""Workloads for the caches: trees of a million tokens, single operations on them, and a run like
that of an engine at its limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bench.engine.radix.contestants import Contestant, Sequence

TREE_TOKENS = 1_000_000
LONG = 100_000  # tokens of a sequence that is matched, inserted or evicted

# Tokens that a step needs, and how many such steps are measured.
STEPS = {16: 2_048, 64: 1_024, 2_048: 32, 4_096: 16}

DECODES = 64  # tokens of a step's streams
CHUNK = 2_048  # of a prompt, in every fourth step
RUN_STEPS = 1_500

Timings = dict[str, float]  # seconds


class Tokens:
    """Random sequences of whole pages."""

    def __init__(self, seed: int, page_size: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.page_size = page_size

    def draw(self, count: int) -> Sequence:
        whole = max(1, count // self.page_size) * self.page_size
        ids: Sequence = self.rng.integers(128_000, size=whole).tolist()
        return ids

    def systems(self) -> list[Sequence]:
        return [self.draw(1_024) for _ in range(16)]


def operations(cache: Contestant, seed: int, page_size: int) -> Timings:
    """Runs one operation after the other on a fresh cache. Times are per call, or per step."""
    tokens = Tokens(seed, page_size)
    systems = tokens.systems()
    lengths = tokens.rng.integers(64, 449, size=3_840).tolist()
    fill = [systems[n % 16] + tokens.draw(length) for n, length in enumerate(lengths)]
    first, second = tokens.draw(LONG), tokens.draw(LONG)
    half = first[: LONG // 2] + second[: LONG // 2]
    for sequence in fill:
        cache.insert(sequence)
    timings = {
        "insert 100,000 new tokens": cache.insert(first),
        "match 100,000 tokens, all cached": cache.match(first)[0],
        "insert 100,000 tokens, half of them cached": cache.insert(half),
        "match 100,000 tokens, none cached": cache.match(second)[0],
    }
    cache.take(cache.free_tokens)
    for needed, steps in STEPS.items():
        seconds = 0.0
        for _ in range(steps):
            seconds += cache.make_room(needed)
            cache.take(needed)
        timings[f"room for {needed:,} tokens, a step"] = seconds / steps
    timings["evict 100,000 tokens of 390 prompts"] = cache.evict(LONG)
    # The rest of the short prompts is used, so that the long ones are evicted first, whole.
    for sequence in fill:
        cache.match(sequence)
    timings["evict a sequence of 100,000 tokens"] = cache.evict(LONG)
    return timings


@dataclass
class Requests:
    """Prompts with their answers: half continue one of the last 200, the others begin with one of
    16 system prompts. Each adds 64 to 1,024 new tokens, all magnitudes equally often; a share of
    them adds 4,096 to 32,768."""

    tokens: Tokens
    long_share: float
    recent: list[Sequence] = field(default_factory=list)

    def __iter__(self) -> Iterator[Sequence]:
        rng, systems = self.tokens.rng, self.tokens.systems()
        while True:
            begin = systems[rng.integers(16)]
            if self.recent and rng.random() < 0.5:
                begin = self.recent[rng.integers(len(self.recent))]
            least, factor = (4_096, 8) if rng.random() < self.long_share else (64, 16)
            sequence = begin + self.tokens.draw(int(least * factor ** rng.random()))
            self.recent = [*self.recent[-199:], sequence]
            yield sequence


def serving(cache: Contestant, seed: int, page_size: int, long_share: float) -> Timings:
    """A full pool of a million tokens, and steps of 64 streams, of which every fourth also runs a
    chunk of a prompt. Each makes room for its tokens; when they complete a request, it is inserted.
    Times are for the whole run."""
    tokens = Tokens(seed, page_size)
    requests = iter(Requests(tokens, long_share))
    request = next(requests)
    while len(request) <= cache.free_tokens:
        cache.insert(request)
        request = next(requests)
    unused = cache.free_tokens
    cache.take(unused)
    timings = dict.fromkeys(("evict", "longest eviction", "match", "insert"), 0.0)
    seconds, cached = cache.match(request)
    running = 0  # tokens computed for requests that are not done
    for step in range(RUN_STEPS):
        needed = DECODES + (CHUNK if step % 4 == 0 else 0)
        seconds = cache.make_room(needed)
        timings["evict"] += seconds
        timings["longest eviction"] = max(timings["longest eviction"], seconds)
        cache.take(needed)
        running += needed
        while running >= len(request) - cached:
            _, cached = cache.match(request)  # some may have been evicted
            if running < len(request) - cached:
                break
            evicted = cache.free_tokens
            cache.give_back()
            timings["insert"] += cache.insert(request)
            running -= len(request) - cached
            cache.take(cache.free_tokens - evicted)
            request = next(requests)
            seconds, cached = cache.match(request)
            timings["match"] += seconds
    return timings
