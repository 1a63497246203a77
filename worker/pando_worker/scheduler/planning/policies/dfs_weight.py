"""`dfs-weight`: depth first through the prefix tree, the branch with the most waiting requests
first (SGLang's policy of this name), so that requests that share a prefix run together."""

from collections.abc import Iterator

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.order import Clock, Order
from pando_worker.scheduler.req import Req


class _ByBranch:
    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._reqs: set[Req] = set()

    def add(self, req: Req) -> None:
        self._reqs.add(req)

    def discard(self, req: Req) -> None:
        self._reqs.remove(req)

    def changed(self, req: Req) -> None:
        pass

    def __iter__(self) -> Iterator[Req]:
        return (req for req in self._matches.by_branch() if req in self._reqs)


def dfs_weight(matches: Matches, clock: Clock) -> Order:
    return _ByBranch(matches)
