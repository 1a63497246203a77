"""`Sent`: which chunks one router sent to which replicas: the memory behind approximate trees.

Chunk keys are chained, so a set of them is a tree: a prompt's chunks are a path from the root, and
two prompts share keys as far as they share their beginnings.
"""

from collections.abc import Iterable, Sequence

from pando_fleet.placement.prefix import KEY_BYTES

Replicas = tuple[str, ...]


def split(keys: bytes) -> list[bytes]:
    """The packed keys as a list, root first."""
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


class Sent:
    """`replicas[key]` are those that were sent a chunk, in the order of their first time."""

    def __init__(self) -> None:
        self.replicas: dict[bytes, Replicas] = {}
        self._recent: dict[str, dict[bytes, None]] = {}  # by replica, least recent first

    def add(self, replica: str, keys: Iterable[bytes]) -> None:
        """The last of `keys` becomes the most recent."""
        recent, replicas = self._recent.setdefault(replica, {}), self.replicas
        before: Replicas | None = None
        after: Replicas = (replica,)
        for key in keys:
            if key in recent:
                del recent[key]
                recent[key] = None
                continue
            recent[key] = None
            there = replicas.get(key, ())
            if there is not before:  # chunks of one path mostly share one tuple object
                before, after = there, (*there, replica)
            replicas[key] = after

    def trim(self, replica: str, most: int) -> None:
        """Forgets the least recent chunks of a replica until it has at most `most`."""
        recent = self._recent.get(replica, {})
        while len(recent) > most:
            key = next(iter(recent))
            del recent[key]
            left = tuple(name for name in self.replicas[key] if name != replica)
            if left:
                self.replicas[key] = left
            else:
                del self.replicas[key]

    def forget(self, replica: str) -> None:
        self.trim(replica, 0)
        self._recent.pop(replica, None)

    def known(self) -> Sequence[str]:
        """The replicas that were sent anything, in the order of their first chunk."""
        return tuple(self._recent)
