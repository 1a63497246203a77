"""All requests of a session go to one replica, while it has room.

A session is named by a header, or by the body's `user`.

A session belongs to the heaviest replica by rendezvous hashing (see `rendezvous`): every router
finds the same one without shared state, and a replica that leaves moves only its own sessions. A
request without a session is placed as by `cache_aware`.
"""

from collections.abc import Sequence

from pando_router.core import rendezvous
from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.policy import PolicyKind


class Session:
    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT | None:
        if not asked.session:
            return None
        return max(replicas, key=lambda one: rendezvous.weight(asked.session, one.beat.replica))


SESSION = PolicyKind(
    name="session",
    help="where its session belongs by rendezvous hashing, whatever the load; without a session as"
    " by cache_aware",
    make=lambda loads, rng: Session(),
    is_stateless=True,
)
