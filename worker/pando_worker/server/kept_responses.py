"""Responses that this worker keeps, so that later requests can go on from them.

Bounded in bytes and in time. Those used least recently go first. A response keeps its whole
conversation, so that it does not depend on the ones before it; a long conversation is counted
again with each response.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from pando_worker.server.answers.response_objects import ResponseObject
from pando_worker.server.protocol.chats.response_items import Item


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """All parts are JSON."""

    response: bytes
    earlier: tuple[bytes, ...]  # items of the conversation before its own input
    input: tuple[bytes, ...]
    output: tuple[bytes, ...]

    @property
    def conversation(self) -> tuple[bytes, ...]:
        return (*self.earlier, *self.input, *self.output)

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.response) + sum(map(len, self.conversation))


@dataclass(slots=True)
class _Held:
    kept: KeptResponse
    used_at: float


class KeptResponses:
    """By tenant, so that none finds another's, and by id."""

    def __init__(
        self, limit: int, lifetime_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            limit: bytes of all that are kept
            lifetime_s: seconds after the last use
        """
        self._limit = limit
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str], _Held] = OrderedDict()  # by last use
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """In bytes."""
        return self._size

    def add(
        self,
        tenant: str,
        response: ResponseObject,
        earlier: tuple[bytes, ...],
        input: Sequence[Item],
    ) -> None:
        """Replaces one of the same id, which a resumed response may have. One that is larger than
        the limit is not kept."""
        encode = msgspec.json.encode
        kept = KeptResponse(
            encode(response),
            earlier,
            tuple(map(encode, input)),
            tuple(map(encode, response.output)),
        )
        self.remove(tenant, response.id)
        if kept.size > self._limit:
            return
        self._entries[tenant, response.id] = _Held(kept, self._clock())
        self._size += kept.size
        self._shrink()

    def find(self, tenant: str, response_id: str) -> KeptResponse | None:
        """Counts as a use."""
        self._shrink()
        entry = self._entries.get((tenant, response_id))
        if entry is None:
            return None
        entry.used_at = self._clock()
        self._entries.move_to_end((tenant, response_id))
        return entry.kept

    def remove(self, tenant: str, response_id: str) -> bool:
        """Whether it was there."""
        self._shrink()
        entry = self._entries.pop((tenant, response_id), None)
        if entry is None:
            return False
        self._size -= entry.kept.size
        return True

    def _shrink(self) -> None:
        oldest = self._clock() - self._lifetime_s
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if self._size <= self._limit and entry.used_at >= oldest:
                return
            del self._entries[key]
            self._size -= entry.kept.size
