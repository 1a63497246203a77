"""`Promises`: whether replicas keep what they compute, by what they had of what the tree promised.

A replica that had less than promised has computed the whole prompt by its first byte, so from then
on it holds all of it, and the path stays: a conversation returns within seconds. A replica that
had less most of the time keeps nothing, such as an engine without prefix caching; there the path is
cut to what it had. Records are keyed by incarnation; a replica that kept its promises has none.
"""

LIMIT = 8  # promises broken beyond those kept, at which a replica is taken to keep nothing


class Promises:
    def __init__(self) -> None:
        self._broken: dict[str, int] = {}  # beyond those kept; at most LIMIT

    def kept(self, incarnation: str) -> None:
        if not self._broken or (broken := self._broken.get(incarnation)) is None:
            return
        if broken > 1:
            self._broken[incarnation] = broken - 1
        else:
            del self._broken[incarnation]

    def broken(self, incarnation: str) -> bool:
        """Notes a promise that the replica did not keep; returns whether it keeps nothing."""
        broken = min(self._broken.get(incarnation, 0) + 1, LIMIT)
        self._broken[incarnation] = broken
        return broken == LIMIT

    def keep_only(self, incarnations: set[str]) -> None:
        """Drops the records of all other incarnations."""
        for gone in self._broken.keys() - incarnations:
            del self._broken[gone]
