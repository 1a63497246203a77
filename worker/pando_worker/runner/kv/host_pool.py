"""`HostKVPool`: the host's part of the KV cache, and how many pages it has.

Layers that see only a window may have pages of their own on the device; so they have on the host.
"""

from dataclasses import dataclass

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import ForwardBatch
from pando_worker.models.errors import DoesNotFit
from pando_worker.models.parallel import ParallelGroup
from pando_worker.rates import Rate
from pando_worker.runner.kv.host_pages import HostPages
from pando_worker.settings import WorkerSettings

STAGING_BYTES = 256 * 2**20  # on a GPU, in each direction, for both kinds of pages together


class HostKVPool:
    """
    Attributes:
        num_pages: 0 where no host memory is given
        num_window_pages: of the layers that have pages of their own; 0 where none have
        rate: bytes copied, both directions and kinds of pages together
    """

    def __init__(
        self,
        pool: TokenToKVPool,
        page_size: int,
        num_pages: int,
        num_window_pages: int = 0,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        """
        Args:
            staging_bytes: of the device's memory in each direction, or a page of each kind where
                these are larger
        """
        self.num_pages, self.num_window_pages = num_pages, num_window_pages
        self.rate = Rate()
        slot_bytes = pool.slot_bytes(released=False) + pool.slot_bytes(released=True)
        staged = max(1, staging_bytes // (slot_bytes * page_size))

        def pages(count: int, *, released: bool) -> HostPages:
            parts = pool.parts(released=released)
            return HostPages(parts, page_size, count, self.rate, staged)

        self.pages = pages(num_pages, released=False)
        self.window_pages = pages(num_window_pages, released=True)

    @property
    def page_bytes(self) -> int:
        """Of a page of all layers."""
        return self.pages.page_bytes + self.window_pages.page_bytes

    def copy(self, batch: ForwardBatch) -> None:
        """Start a batch's copies; what is launched on the model's stream from now on sees them."""
        self.pages.copy(batch.stores, batch.loads)
        self.window_pages.copy(batch.window_stores, batch.window_loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBudget:
    """What decides how many pages the host has."""

    memory_bytes: int
    page_bytes: int  # of the layers that keep all
    window_page_bytes: int  # of those that release pages behind their window
    ratio: float  # of window pages to the others
    least_window_pages: int  # that one prefix needs to be continued from

    @property
    def least_bytes(self) -> int:
        return self.page_bytes + self.least_window_pages * self.window_page_bytes

    def split(self) -> tuple[int, int]:
        """Pages, and window pages. Where all layers have windows, the others hold nothing, and are
        as many as the ratio tells."""
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
    """The host's pool of this rank, as large as that of every other rank.

    Raises:
        DoesNotFit: there is memory for it, but for less than a page, or than a window.
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
