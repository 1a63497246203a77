"""Chooses between FlashAttention 2 and 3 by a call's rows.

FlashAttention 3 is faster on each tile, but one multiprocessor reads all keys of a tile, and each
query head has tiles of its own. flashinfer's FlashAttention 2 splits keys over multiprocessors and
puts the query heads of a KV head into one tile. So few new tokens behind many cached ones, the
usual case with a prefix cache, want the latter, and long prompts the former. `python -m bench.gpu
--tune` measures both on a device; without its table an estimate decides.
"""

import logging
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import torch

from pando_worker.batch import Int32, Int64
from pando_worker.user_cache import cache_directory

log = logging.getLogger("pando.worker.cuda")

TILE = 128  # queries
# How much faster FlashAttention 3 is on full tiles of a Hopper GPU: FlashAttention 3's paper
# (arXiv:2407.08608) reports 1.5 to 2.0.
FA3_SPEED = 1.6


class Heads(msgspec.Struct, frozen=True):
    """What kernels are compiled for, of which the choice depends on."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int


class Point(msgspec.Struct, frozen=True):
    """A measured call of equal rows."""

    rows: int
    new: int  # tokens of a row
    keys: int  # of a row
    fa2_us: float
    fa3_us: float


class Measured(msgspec.Struct, frozen=True):
    heads: Heads
    points: list[Point]


class KernelTable(msgspec.Struct, frozen=True):
    """The times of both kernels on one device."""

    device: str
    measured: list[Measured]

    def of(self, heads: Heads) -> list[Point]:
        return next((each.points for each in self.measured if each.heads == heads), [])


class KernelChoice(Protocol):
    def __call__(self, new: Int32 | Int64, keys: Int32 | Int64, /) -> bool:
        """Whether FlashAttention 3 is the faster kernel.

        Args:
            new: [rows], the new tokens of each
            keys: [rows], that each row's last token sees
        """
        ...


class Estimate:
    """By the tiles that each kernel's busiest multiprocessor computes."""

    def __init__(self, heads: Heads, multiprocessors: int) -> None:
        self._heads, self._multiprocessors = heads, multiprocessors

    def __call__(self, new: Int32 | Int64, keys: Int32 | Int64, /) -> bool:
        heads, many = self._heads, self._multiprocessors
        group = heads.heads // heads.kv_heads
        keys = keys.astype(np.int64)
        whole = heads.heads * (-(-new // TILE) * keys).sum() / many
        packed = heads.kv_heads * (-(-(new * group) // TILE) * keys).sum() / many
        return bool(max(whole, keys.max()) < FA3_SPEED * packed)


class Nearest:
    """By the measured call with the nearest sizes, in doublings."""

    def __init__(self, points: list[Point]) -> None:
        self._at = np.log2([[point.rows, point.new, point.keys] for point in points])
        self._is_fa3 = [point.fa3_us < point.fa2_us for point in points]

    def __call__(self, new: Int32 | Int64, keys: Int32 | Int64, /) -> bool:
        # Rows count by their work, so that a long one among short ones decides.
        work = new.astype(np.float64) * keys
        share = work / work.sum()
        sizes = np.array([1 / (share**2).sum(), (share * new).sum(), (share * keys).sum()])
        return self._is_fa3[int(np.abs(self._at - np.log2(sizes)).sum(axis=1).argmin())]


def table_path(device_name: str) -> Path:
    """Where the table of a device is kept. Raises OSError: this user has no home directory."""
    name = "".join(c if c.isalnum() else "-" for c in device_name.lower())
    return cache_directory("attention", f"{name}.json")


def read_table(device: torch.device) -> KernelTable | None:
    """The measured table of a GPU; None if there is none that can be read."""
    name = torch.cuda.get_device_name(device)
    try:
        path = table_path(name)
        found = msgspec.json.decode(path.read_bytes(), type=KernelTable)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the table of attention's kernels is not used: %s", error)
        return None
    log.info("attention's kernels are chosen by %s", path)
    return found


def choose_by(table: KernelTable | None, heads: Heads, multiprocessors: int) -> KernelChoice:
    """By the table if it has these heads."""
    points = [] if table is None else table.of(heads)
    return Nearest(points) if points else Estimate(heads, multiprocessors)
