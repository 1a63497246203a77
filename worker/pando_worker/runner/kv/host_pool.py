"""`HostKVPool`: the host's part of the KV cache and its number of pages.

Layers with a sliding window that have their own pages on the device also have them on the host.
"""

import logging
from dataclasses import dataclass

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import ForwardBatch
from pando_worker.models.errors import DoesNotFit
from pando_worker.models.parallel import ParallelGroup
from pando_worker.rates import Rate
from pando_worker.runner.kv.host_pages import HostPages
from pando_worker.settings import WorkerSettings
from pando_worker.tensors.pinned import PinningFailed

log = logging.getLogger("pando.worker.runner")

STAGING_BYTES = 256 * 2**20  # on a GPU, in each direction, for both kinds of pages together


class HostKVPool:
    """
    Attributes:
        num_pages: 0 without host memory
        num_window_pages: of the layers with their own pages; 0 if there are none
        rate: bytes copied, in both directions and for both kinds of pages
    """

    def __init__(
        self,
        pool: TokenToKVPool,
        page_size: int,
        num_pages: int,
        num_window_pages: int = 0,
        *,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        """
        Args:
            staging_bytes: device memory for each direction, raised to a page of each kind in each
                buffer if that is larger

        Raises:
            DoesNotFit: the system does not let this process pin so much memory.
        """
        self.num_pages, self.num_window_pages = num_pages, num_window_pages
        self.rate = Rate()
        slot_bytes = pool.slot_bytes(released=False) + pool.slot_bytes(released=True)
        staged = max(1, staging_bytes // (slot_bytes * page_size))
        on_gpu = pool.k[0].is_cuda

        def pages(count: int, *, released: bool) -> HostPages:
            parts = pool.parts(released=released)
            return HostPages(parts, page_size, count, self.rate, staged, on_gpu)

        try:
            self.pages = pages(num_pages, released=False)
            self.window_pages = pages(num_window_pages, released=True)
        except PinningFailed as error:
            raise DoesNotFit(f"host_memory_gib is too large for this machine: {error}") from error
        kinds = self.pages, self.window_pages
        if pinned := sum(kind.pinned_bytes for kind in kinds):
            pool.before_layer = self.arrive
            staging = 2 * sum(kind.staging_bytes for kind in kinds)
            message = "host tier: %.2f GiB pinned, %.0f MiB of the GPU for copies"
            log.info(message, pinned / 2**30, staging / 2**20)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page of all layers."""
        return self.pages.page_bytes + self.window_pages.page_bytes

    def copy(self, batch: ForwardBatch) -> None:
        """Start a batch's copies. Later work on the model's stream sees their results; on a GPU a
        layer's loads after `arrive`."""
        self.pages.copy(batch.stores, batch.loads)
        self.window_pages.copy(batch.window_stores, batch.window_loads)

    def arrive(self, layer: int) -> None:
        """Later work on the model's stream sees what `copy` loads of a layer."""
        self.pages.arrive(layer)
        self.window_pages.arrive(layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBudget:
    """Determines the host's number of pages."""

    memory_bytes: int
    page_bytes: int  # of the layers that keep all pages
    window_page_bytes: int  # of those that release pages behind their window
    ratio: float  # window pages per other page
    least_window_pages: int  # that continuing one prefix needs

    @property
    def least_bytes(self) -> int:
        return self.page_bytes + self.least_window_pages * self.window_page_bytes

    def split(self) -> tuple[int, int]:
        """The numbers of pages and of window pages. If all layers have windows, the pages hold
        nothing, and the ratio determines their number."""
        if not self.window_page_bytes:
            return self.memory_bytes // self.page_bytes, 0
        pages = int(self.memory_bytes / (self.page_bytes + self.ratio * self.window_page_bytes))
        window_pages = max(int(self.ratio * pages), self.least_window_pages)
        if self.page_bytes:
            left = self.memory_bytes - window_pages * self.window_page_bytes
            pages = min(pages, left // self.page_bytes)
        return pages, window_pages


def make_host_pool(
    pool: TokenToKVPool, settings: WorkerSettings, group: ParallelGroup
) -> HostKVPool:
    """This rank's host pool, equally large on every rank.

    Raises:
        DoesNotFit: the given memory holds less than a page or less than a window.
    """
    size = settings.page_size
    budget = HostBudget(
        memory_bytes=int(settings.host_memory_gib * 2**30) // group.size,
        page_bytes=pool.slot_bytes(released=False) * size,
        window_page_bytes=pool.slot_bytes(released=True) * size,
        ratio=settings.window_ratio,
        least_window_pages=-(-pool.window // size) + 1 if pool.windowed else 0,
    )
    if settings.host_memory_gib == 0:
        return HostKVPool(pool, size, 0)
    if group.smallest(budget.memory_bytes - budget.least_bytes) < 0:
        window = f" and the {pool.window} of a window" if pool.windowed else ""
        raise DoesNotFit(
            f"host_memory_gib {settings.host_memory_gib} is less than a KV page of {size} tokens"
            f"{window} takes: {budget.least_bytes} bytes on each of {group.size} ranks"
        )
    return HostKVPool(pool, size, *map(group.smallest, budget.split()))
