"""`AdapterInfo`: an adapter that was read and fits the model."""

from dataclasses import dataclass
from pathlib import Path

RANK_PAGE = 16
"""A page of device memory has room for so many ranks of all linear layers. An adapter takes as many
pages as its own matrices fill, whatever the largest rank is."""


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """
    Attributes:
        identity: 16 bytes, a hash of the weights and of what scales them. Two names of equal
            adapters have the same identity, and a changed adapter has another one
        path: the directory that it was read from
        rank: the largest of its modules
        pages: of device memory
        num_bytes: that it takes in host memory
    """

    identity: bytes
    path: Path
    rank: int
    pages: int
    num_bytes: int
