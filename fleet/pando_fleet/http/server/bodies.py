"""The bodies of all requests: how many may arrive at once, and how many bytes all of them take.

When there is no room for a body, another one that still arrives is cut instead, if that is fairer:
first the slowest of those below SLOW_BYTES_S, whoever sends it; then the slowest of the client that
holds most, if it holds more than the one that needs room. So a client that withholds the ends of
its bodies, or sends many at once, harms itself. Complete bodies are never cut.
"""

from collections.abc import Callable
from typing import Protocol

from pando_fleet.current import Current
from pando_fleet.free_memory import Trimmer
from pando_fleet.http.server.byte_budget import ByteBudget

SLOW_BYTES_S = 65_536.0
MANY = 256  # bodies at once, whose connections take megabytes, however short they are


class Arriving(Protocol):
    """A body of which more is to come."""

    @property
    def client(self) -> str:
        """Whose it is: an API key's owner, or an address."""

    @property
    def taken(self) -> int:
        """Its bytes in memory."""

    def bytes_s(self) -> float:
        """The rate at which it arrives; infinity while it is too early to say."""

    def cut(self) -> None:
        """Drops the body, gives its bytes back, and lets its request fail."""


class Bodies:
    def __init__(self, max_bytes: Current[int], max_arriving: Current[int]) -> None:
        """If a limit shrinks, bodies that are here remain."""
        self.budget = ByteBudget(max_bytes)
        self.trimmer = Trimmer()
        self._max_arriving = max_arriving
        self._arriving: dict[Arriving, None] = {}

    @property
    def arriving(self) -> int:
        """The number of bodies of which more is to come."""
        return len(self._arriving)

    def begins(self, body: Arriving) -> bool:
        """Counts a body of which more is to come. Returns False if there is no place for it."""
        while len(self._arriving) >= self._max_arriving.now:
            if not self._cut_another(body, 1, lambda _: 1):
                return False
        self._arriving[body] = None
        return True

    def ends(self, body: Arriving) -> None:
        """The body is complete, or will not be."""
        self._arriving.pop(body, None)
        if len(self._arriving) >= MANY:
            self.trimmer.soon()

    def take(self, size: int, body: Arriving) -> bool:
        """Takes `size` more bytes of memory. Returns False, and takes none, if there is no room."""
        while not self.budget.take(size):
            if not self._cut_another(body, size, lambda other: other.taken):
                return False
        return True

    def has_room(self, size: int, body: Arriving) -> bool:
        """Whether there is room for `size` more bytes. Cuts others for it, as `take` does."""
        if has_room := self.take(size, body):
            self.budget.give_back(size)
        return has_room

    def _cut_another(self, body: Arriving, more: int, weight: Callable[[Arriving], int]) -> bool:
        """Makes room for `more` of what `weight` counts. Returns False if no other is to go."""
        rates = {one: one.bytes_s() for one in self._arriving if one is not body and weight(one)}
        candidates = [one for one, rate in rates.items() if rate < SLOW_BYTES_S]
        if not candidates:
            shares = {body.client: more}
            for one in self._arriving:
                shares[one.client] = shares.get(one.client, 0) + weight(one)
            largest = max(shares, key=shares.__getitem__)
            if largest == body.client:
                return False
            candidates = [one for one in rates if one.client == largest]
        victim = min(candidates, key=rates.__getitem__)
        self.ends(victim)
        victim.cut()
        return True
