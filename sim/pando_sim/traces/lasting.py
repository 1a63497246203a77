"""Which beginnings of prompts are in use throughout a trace: system prompts, tools, examples.

A repeated trace should be more of the same load: new conversations that begin like the old ones. A
conversation, or a document that is asked about, belongs to a short time; a beginning lasts if it
was first and last used more than half of the trace apart. If a beginning lasts, so do all shorter
ones, so the lasting part of a prompt is its first part.
"""

import numpy as np
from numpy.typing import NDArray

from pando_sim.traces.prompts import Ids

_Times = NDArray[np.float64]

GATHER = 1 << 20
"""Names that are gathered before they are merged with the others: 24 MiB."""


class Lasting:
    """Call `add` with each prompt's path, then `end`; then `kept` returns what lasts of a path.

    Holds 24 bytes for each distinct beginning.
    """

    def __init__(self, gather: int = GATHER) -> None:
        self._gather = gather
        self._names = np.zeros(0, dtype=np.uint64)  # sorted, each once
        self._first: _Times = np.zeros(0)
        self._last: _Times = np.zeros(0)
        self._new: list[tuple[Ids, float]] = []
        self._num_new = 0

    def add(self, path: Ids, at_s: float) -> None:
        """Call it in the order of times."""
        if len(path):
            self._new.append((path, at_s))
        self._num_new += len(path)
        if self._num_new >= max(self._gather, len(self._names)):
            self._join()

    def end(self, duration_s: float) -> None:
        """The trace has ended, and lasted `duration_s`."""
        self._join()
        self._names = self._names[self._last - self._first > duration_s / 2]
        self._first = self._last = np.zeros(0)

    def kept(self, path: Ids) -> int:
        """The length of the lasting part of a path."""
        if not len(self._names):
            return 0
        places = np.minimum(np.searchsorted(self._names, path), len(self._names) - 1)
        lost = np.flatnonzero(self._names[places] != path)
        return int(lost[0]) if len(lost) else len(path)

    def _join(self) -> None:
        if not self._num_new:
            return
        paths = [path for path, _ in self._new]
        times = np.repeat([at_s for _, at_s in self._new], [len(path) for path in paths])
        names = np.concatenate([self._names, *paths])
        order = np.argsort(names, kind="stable")
        names = names[order]
        starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        self._names = names[starts]
        # Stable: among equal names the old ones come first, then the new ones by time.
        ends = np.append(starts[1:], len(names)) - 1
        self._first = np.concatenate([self._first, times])[order][starts]
        self._last = np.concatenate([self._last, times])[order][ends]
        self._new, self._num_new = [], 0
