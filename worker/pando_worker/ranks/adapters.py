"""Puts a rank's shares of adapters into its memory. Rank 0, which alone reads the files, sends them
through the same socket as batches, so a share comes before any batch that uses it."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch

from pando_worker.batch import ForwardBatch
from pando_worker.models.lora.linear import LoraMemory, PackedAdapter
from pando_worker.ranks.adapter_load import AdapterLoad, Frame


class ReceivedAdapters:
    """Copies shares in the background. Batches wait for those that they use."""

    def __init__(self, memory: LoraMemory) -> None:
        self._memory = memory
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="adapter-loads")
        self._pending: dict[int, Future[None]] = {}  # by slot

    def receive(self, load: AdapterLoad, numbers: Frame) -> None:
        self._pending[load.slot] = self._thread.submit(self._put, load, numbers)

    def before(self, batch: ForwardBatch) -> None:
        """Wait for the adapters of a batch. Raises what their loads raised."""
        if batch.adapters is None:
            return
        for slot in self._pending.keys() & set(batch.adapters.slots.tolist()):
            self._pending.pop(slot).result()

    def _put(self, load: AdapterLoad, numbers: Frame) -> None:
        whole = torch.frombuffer(bytearray(numbers.buffer), dtype=self._memory.dtype)
        pages = whole.view(-1, self._memory.page_numbers)
        self._memory.put(load.slot, load.pages, PackedAdapter(pages, load.sections))
