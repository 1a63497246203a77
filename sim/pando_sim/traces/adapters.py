"""Gives the requests of a trace LoRA adapters of which a few are popular.

Each conversation gets one of them, or each request of a trace without conversations: adapter `n`
with a probability proportional to `1 / n ** exponent` (Zipf's law).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate

from pando_sim.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Popularity:
    adapters: int
    exponent: float = 1.0
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The most popular one first."""
        return tuple(f"adapter-{number}" for number in range(1, self.adapters + 1))


def with_adapters(requests: Iterable[Request], popularity: Popularity) -> Iterator[Request]:
    """The requests, each with an adapter; equal seeds give equal ones."""
    names, exponent = popularity.names, popularity.exponent
    sums = list(accumulate(1 / number**exponent for number in range(1, len(names) + 1)))
    for request in requests:
        who = request.session or request.number
        drawn = blake2b(f"{popularity.seed} {who}".encode(), digest_size=7).digest()
        share = int.from_bytes(drawn) / 2 ** (8 * len(drawn))
        yield replace(request, adapter=names[bisect_left(sums, share * sums[-1])])
