"""Rendezvous hashing with bounded loads: equal prompt starts go to the same replica, statelessly.

Highest random weight hashing (Thaler and Ravishankar, 1996): each replica's weight is a hash of the
prompt's start and the replica's name, and the heaviest wins, so a replica that joins or leaves
moves only its own share. Replicas with more than 1.25 times the mean load are skipped, as in
consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018).
"""

from collections.abc import Container, Mapping
from math import ceil

from xxhash import xxh3_64_intdigest

BOUND = 1.25  # of the mean load


def weight(affinity: bytes, name: str) -> int:
    return xxh3_64_intdigest(name.encode() + b"\0" + affinity)


def rank(affinity: bytes, names: list[str]) -> list[str]:
    """`names` by weight for these bytes, heaviest first."""
    return sorted(names, key=lambda name: weight(affinity, name), reverse=True)


def choose(affinity: bytes, loads: Mapping[str, int], preferred: Container[str] = ()) -> str:
    """The heaviest replica whose load, with this request, is within the bound, first of the
    `preferred` ones; `loads` by name."""
    limit = ceil(BOUND * (sum(loads.values()) + 1) / len(loads))
    roomy = [name for name in rank(affinity, list(loads)) if loads[name] < limit]
    return next((name for name in roomy if name in preferred), roomy[0])
