"""`dfs-weight`: depth first through the prefix tree, the branch with the most waiting requests
first (SGLang's policy of this name), so that requests that share a prefix run together."""

from collections.abc import Iterator
from typing import Generic

from pando_worker.policies.schedule.order import MatchesView, ReqT, SchedulePolicy


class _ByBranch(Generic[ReqT]):
    def __init__(self, matches: MatchesView[ReqT]) -> None:
        self._matches = matches
        self._reqs: set[ReqT] = set()

    def add(self, req: ReqT) -> None:
        self._reqs.add(req)

    def discard(self, req: ReqT) -> None:
        self._reqs.remove(req)

    def changed(self, req: ReqT) -> None:
        pass

    def __iter__(self) -> Iterator[ReqT]:
        return (req for req in self._matches.by_branch() if req in self._reqs)


DFS_WEIGHT = SchedulePolicy(
    name="dfs-weight",
    help="the branch of the prefix tree with the most requests",
    make=lambda matches, clock: _ByBranch(matches),
)
