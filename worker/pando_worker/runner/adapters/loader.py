"""`AdapterLoader`: reads adapters and copies them into slots of device memory, in threads of its
own."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pando_worker.adapters.adapter import Adapter
from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.info import RANK_PAGE, AdapterInfo
from pando_worker.adapters.layout import Layout
from pando_worker.adapters.peft_config import FILE
from pando_worker.adapters.reading import read_adapter
from pando_worker.adapters.tensor_file import WEIGHTS, Rest
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_adapter
from pando_worker.models.lora.linear import LoraMemory
from pando_worker.runner.adapters.base import BaseModel
from pando_worker.runner.adapters.host_cache import HostCache, Shares
from pando_worker.runner.adapters.pace import Pace
from pando_worker.runner.adapters.packing import pack
from pando_worker.runner.adapters.recipe import Recipe, recipe_of

_NICE = 10

_Stamp = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is known of an adapter's files since they were checked."""

    stamp: _Stamp
    recipe: Recipe | None


Send = Callable[[int, Sequence[int], Shares], None]
"""Gives each of the other ranks its share of an adapter for a slot and pages."""


class AdapterLoader:
    """`Adapters` of rank 0, which alone reads files.

    Args:
        layouts: of all ranks
        memory: this rank's, the first
        host_bytes: of adapters in host memory
        model_dir: of the base; None if its weights come from no file
        pace: of checks

    Attributes:
        send: to be set where there are other ranks
    """

    def __init__(
        self,
        memory: LoraMemory,
        layouts: Sequence[Layout],
        *,
        host_bytes: int,
        model_dir: Path | None,
        pace: Pace,
    ) -> None:
        self._memory, self._layouts = memory, layouts
        self.send: Send | None = None
        self._host = HostCache(host_bytes)
        self._pace = pace
        self._checked: dict[bytes, _Checked] = {}  # by identity
        self._base = BaseModel(layouts[0], model_dir, memory.dtype)
        # A check may download for minutes, and loads must not wait for it. Requests wait for loads,
        # so only checks rest as well while steps run.
        self._checks = ThreadPoolExecutor(1, "adapter-checks", _leave_the_cores)
        self._loads = ThreadPoolExecutor(1, "adapter-loads", _leave_the_cores)

    def check(self, path: str) -> Future[AdapterInfo]:
        return self._checks.submit(self._check, path)

    def load(self, slot: int, pages: Sequence[int], info: AdapterInfo) -> Future[None]:
        return self._loads.submit(self._load, slot, pages, info)

    def forget(self, identity: bytes) -> None:
        self._host.drop(identity)
        self._checked.pop(identity, None)

    @property
    def in_host_memory(self) -> frozenset[bytes]:
        return self._host.identities

    def close(self) -> None:
        """Wait for work in progress, and end the threads."""
        self._checks.shutdown(cancel_futures=True)
        self._loads.shutdown(cancel_futures=True)

    def _check(self, path: str) -> AdapterInfo:
        try:
            directory = resolve_adapter(path)
        except ModelError as error:
            raise AdapterError(str(error)) from error
        self._pace.begin()
        stamp = _stamp(directory)
        adapter = self._read(directory, rest=self._pace.rest)
        shares = self._packed(adapter, self._pace.rest)
        pages = max(1, *(len(share.pages) for share in shares))
        if pages > (most := len(self._memory.pages)):
            raise AdapterError(
                f"{directory} takes as much device memory as {pages * RANK_PAGE} ranks of all"
                f" layers; there is room for {most * RANK_PAGE}: raise lora_ranks"
            )
        self._host.put(adapter.identity, shares)
        recipe = recipe_of(adapter, self._layouts, shares)
        self._checked[adapter.identity] = _Checked(stamp, recipe)
        return AdapterInfo(
            identity=adapter.identity,
            path=directory,
            rank=adapter.rank,
            pages=pages,
            num_bytes=sum(share.nbytes for share in shares),
        )

    def _load(self, slot: int, pages: Sequence[int], info: AdapterInfo) -> None:
        assert len(pages) == info.pages
        mine, *others = self._shares(info)
        if others:
            assert self.send is not None
            self.send(slot, pages, others)
        self._memory.put(slot, pages, mine)

    def _shares(self, info: AdapterInfo) -> Shares:
        if (kept := self._host.get(info.identity)) is not None:
            return kept
        shares = self._read_again(info)
        self._host.put(info.identity, shares)
        return shares

    def _read_again(self, info: AdapterInfo) -> Shares:
        checked, stamp = self._checked.get(info.identity), _stamp(info.path)
        is_same = checked is not None and bool(stamp) and checked.stamp == stamp
        if checked is not None and checked.recipe is not None and is_same:
            shares = checked.recipe.shares(info.path)
            if _stamp(info.path) == stamp:
                return shares
            is_same = False  # it was written to meanwhile
        adapter = self._read(info.path, info.identity if is_same else None)
        if adapter.identity != info.identity:
            raise AdapterError(
                f"{info.path} has other weights now than when it was checked; load it again"
            )
        return self._packed(adapter)

    def _read(
        self, directory: Path, known: bytes | None = None, *, rest: Rest = lambda: None
    ) -> Adapter:
        return read_adapter(
            directory,
            self._base,
            most_rank=self._memory.most_rank,
            most_bytes=self._host.most_bytes,
            known=known,
            rest=rest,
        )

    def _packed(self, adapter: Adapter, rest: Rest = lambda: None) -> Shares:
        return [pack(adapter, layout, self._memory.dtype, rest) for layout in self._layouts]


def _stamp(directory: Path) -> "_Stamp":
    """Changes with each write to an adapter's files."""
    try:
        status = [(directory / name).stat() for name in (FILE, WEIGHTS)]
    except OSError:
        return ()  # reading says what is wrong
    return tuple(
        (each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for each in status
    )


def _leave_the_cores() -> None:
    """Let this thread have a tenth of a core that steps want as well. Linux's idle class would have
    it wait forever beside steps without a gap."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)
