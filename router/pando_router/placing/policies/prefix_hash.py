"""Equal prompt starts go to the same replica, unless it has more than its share of the load.

Consistent hashing with bounded loads, see `rendezvous`. It does not consult the prefix tree: useful
for replicas that do not report their caches, and as a baseline for `cache_aware`.
"""

from collections.abc import Sequence

from pando_router.core import rendezvous
from pando_router.fleet_view.view import Member
from pando_router.placing.policies.loads import Loads
from pando_router.placing.route import Prompt


class PrefixHash:
    def __init__(self, loads: Loads) -> None:
        self._loads = loads

    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member:
        by_name = {member.beat.replica: member for member in members}
        loads = {name: self._loads(member) for name, member in by_name.items()}
        return by_name[rendezvous.choose(prompt.affinity, loads)]
