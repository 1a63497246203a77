"""`CopyQueue`: page copies that wait for the next batch, by their target page."""

import numpy as np

from pando_worker.batch import PageCopies
from pando_worker.memory.page_allocator import Pages


class CopyQueue:
    """Each page is the target of at most one copy; a later one replaces an earlier one. Targets are
    pages of the host (`to_host`) or of the device, and sources are pages of the other."""

    def __init__(self, num_targets: int, *, to_host: bool) -> None:
        self._to_host = to_host
        self._source: Pages = np.full(num_targets, -1, dtype=np.int32)
        self._targets: list[Pages] = []

    def add(self, targets: Pages, sources: Pages) -> None:
        self._source[targets] = sources
        self._targets.append(targets)

    def cancel(self, targets: Pages) -> None:
        self._source[targets] = -1

    def take(self) -> PageCopies | None:
        """Remove and return all queued copies; None if there are none."""
        if not self._targets:
            return None
        targets = np.unique(np.concatenate(self._targets))
        targets = targets[self._source[targets] >= 0]
        sources = self._source[targets]
        self._source[targets] = -1
        self._targets.clear()
        if not len(targets):
            return None
        host, device = (targets, sources) if self._to_host else (sources, targets)
        return PageCopies(device=device, host=host)
