"""Equal prompt starts go to the same replica, unless it has more than its share of the load.

Consistent hashing with bounded loads, see `rendezvous`. It does not consult the prefix tree: useful
for replicas that do not report their caches, and as a baseline for `cache_aware`.
"""

from collections.abc import Sequence

from pando_router.core import rendezvous
from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.loads import Loads
from pando_router.policies.policy import PolicyKind


class PrefixHash:
    def __init__(self, loads: Loads) -> None:
        self._loads = loads

    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT:
        named = {replica.beat.replica: replica for replica in replicas}
        loads = {name: self._loads(replica) for name, replica in named.items()}
        return named[rendezvous.choose(asked.affinity, loads)]


PREFIX_HASH = PolicyKind(
    name="prefix_hash",
    help="where the first 256 bytes of its prompt belong by rendezvous hashing, unless that one has"
    " more than 1.25 times the mean load",
    make=lambda loads, rng: PrefixHash(loads),
    is_stateless=True,
)
