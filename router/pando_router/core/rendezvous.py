"""Rendezvous hashing with bounded loads: equal prompt starts go to the same place, without memory.

Highest random weight hashing (Thaler and Ravishankar, 1996): every replica gets a weight from the
hash of the prompt's start and its name, and the heaviest wins, so a replica that comes or goes
moves only its own share. One whose load is above 1.25 times the mean is passed over, as in
consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018).
"""

from collections.abc import Mapping
from math import ceil

from xxhash import xxh3_64_intdigest

BOUND = 1.25  # of the mean load


def weight(affinity: bytes, name: str) -> int:
    return xxh3_64_intdigest(name.encode() + b"\0" + affinity)


def rank(affinity: bytes, names: list[str]) -> list[str]:
    """`names`, heaviest first for these bytes."""
    return sorted(names, key=lambda name: weight(affinity, name), reverse=True)


def choose(affinity: bytes, loads: Mapping[str, int]) -> str:
    """The first in rank whose load, with this request, stays within the bound; `loads` by name."""
    limit = ceil(BOUND * (sum(loads.values()) + 1) / len(loads))
    return next(name for name in rank(affinity, list(loads)) if loads[name] < limit)
