"""`OpenRequests`: the requests that are not answered yet, by their ids, and their deadlines."""

import math
from collections.abc import Iterator

from pando_worker.scheduler.req import Req


class OpenRequests:
    def __init__(self) -> None:
        self._by_rid: dict[str, Req] = {}
        self._next_deadline = math.inf  # no request is late before

    def __len__(self) -> int:
        return len(self._by_rid)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._by_rid.values())

    def get(self, rid: str) -> Req | None:
        return self._by_rid.get(rid)

    def add(self, req: Req) -> None:
        self._by_rid[req.rid] = req
        self._next_deadline = min(self._next_deadline, req.deadline)

    def remove(self, req: Req) -> None:
        del self._by_rid[req.rid]

    @property
    def have_deadlines(self) -> bool:
        """Whether any may become late."""
        return self._next_deadline < math.inf

    @property
    def array_bytes(self) -> int:
        """Of their images and sources."""
        return sum(req.array_bytes for req in self)

    def use(self, adapter: bytes) -> bool:
        """Whether any has this adapter."""
        return any(req.adapter == adapter for req in self)

    def late(self, now: float) -> list[Req]:
        """Those whose deadlines have passed; each once, unless the clock goes back."""
        if now < self._next_deadline:
            return []
        left = (req.deadline for req in self if req.deadline > now)
        self._next_deadline = min(left, default=math.inf)
        return [req for req in self if req.deadline <= now]
