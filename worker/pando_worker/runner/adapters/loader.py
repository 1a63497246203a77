"""`AdapterLoader`: reads adapters and copies them into slots of device memory, in threads of its
own."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.info import RANK_PAGE, AdapterInfo
from pando_worker.adapters.layout import Layout
from pando_worker.adapters.reading import Adapter, read_adapter
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_adapter
from pando_worker.models.lora import LoraMemory
from pando_worker.models.text_part import text_tensors
from pando_worker.runner.adapters.host_cache import HostCache, Shares
from pando_worker.runner.adapters.packing import pack

_NICE = 10

Send = Callable[[int, Sequence[int], Shares], None]
"""Gives each of the other ranks its share of an adapter for a slot and pages."""


class AdapterLoader:
    """`Adapters` of rank 0, which alone reads files.

    Args:
        layouts: of all ranks
        memory: this rank's, the first
        host_bytes: of adapters in host memory

    Attributes:
        send: to be set where there are other ranks
    """

    def __init__(
        self,
        memory: LoraMemory,
        layouts: Sequence[Layout],
        *,
        host_bytes: int,
    ) -> None:
        self._memory, self._layouts = memory, layouts
        self.send: Send | None = None
        self._host = HostCache(host_bytes)
        self._names = {section.name for section in layouts[0]}
        # A check may download for minutes, and loads must not wait for it. Requests wait for loads,
        # so only checks give way to steps.
        self._checks = ThreadPoolExecutor(1, "adapter-checks", _leave_the_cores)
        self._loads = ThreadPoolExecutor(1, "adapter-loads")

    def check(self, path: str) -> Future[AdapterInfo]:
        return self._checks.submit(self._check, path)

    def load(self, slot: int, pages: Sequence[int], info: AdapterInfo) -> Future[None]:
        return self._loads.submit(self._load, slot, pages, info)

    def forget(self, identity: bytes) -> None:
        self._host.drop(identity)

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
        adapter = self._read(directory)
        shares = self._packed(adapter)
        pages = max(len(share.pages) for share in shares)
        if pages > (most := len(self._memory.pages)):
            raise AdapterError(
                f"{directory} takes as much device memory as {pages * RANK_PAGE} ranks of all"
                f" layers; there is room for {most * RANK_PAGE}: raise lora_ranks"
            )
        self._host.put(adapter.identity, shares)
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
        adapter = self._read(info.path)
        if adapter.identity != info.identity:
            raise AdapterError(
                f"{info.path} has other weights now than when it was checked; load it again"
            )
        shares = self._packed(adapter)
        self._host.put(info.identity, shares)
        return shares

    def _read(self, directory: Path) -> Adapter:
        return read_adapter(
            directory,
            self._layouts[0],
            named=self._named,
            most_rank=self._memory.most_rank,
            most_bytes=self._host.most_bytes,
        )

    def _named(self, module: str) -> str | None:
        """The name that a module of transformers has in the layout."""
        if not (renamed := list(text_tensors({module: None}))):
            return None
        [name] = renamed
        if name not in self._names and f"model.{name}" in self._names:
            return f"model.{name}"  # trained on the class without a head
        return name

    def _packed(self, adapter: Adapter) -> Shares:
        return [pack(adapter, layout, self._memory.dtype) for layout in self._layouts]


def _leave_the_cores() -> None:
    """Let this thread have a tenth of a core that steps want as well. Linux's idle class would have
    it wait forever beside steps without a gap."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)
