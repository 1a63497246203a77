"""`HostCache`: packed adapters in host memory, of which the one unused for longest goes first."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from pando_worker.models.lora.linear import PackedAdapter

Shares = Sequence[PackedAdapter]
"""An adapter, as each rank has it."""


class HostCache:
    """May be used from several threads.

    Args:
        most_bytes: of all adapters together
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[bytes, Shares] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def get(self, identity: bytes) -> Shares | None:
        with self._lock:
            if identity in self._kept:
                self._kept.move_to_end(identity)
            return self._kept.get(identity)

    def put(self, identity: bytes, adapter: Shares) -> None:
        """Keep an adapter; it is dropped at once if it is larger than the whole cache."""
        with self._lock:
            self._drop(identity)
            self._kept[identity] = adapter
            self._bytes += _size(adapter)
            while self._bytes > self.most_bytes:
                self._drop(next(iter(self._kept)))

    def drop(self, identity: bytes) -> None:
        with self._lock:
            self._drop(identity)

    @property
    def identities(self) -> frozenset[bytes]:
        with self._lock:
            return frozenset(self._kept)

    def _drop(self, identity: bytes) -> None:
        if (adapter := self._kept.pop(identity, None)) is not None:
            self._bytes -= _size(adapter)


def _size(adapter: Shares) -> int:
    return sum(share.nbytes for share in adapter)
