"""The default: placement in Redis weighs cache and load (fleet/README.md, "The score")."""

from collections.abc import Sequence

from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.policy import PolicyKind


class CacheAware:
    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> None:
        return None


CACHE_AWARE = PolicyKind(
    name="cache_aware",
    help="the replica where it delays itself and the requests behind it least, by cache and load",
    make=lambda loads, rng: CacheAware(),
    is_stateless=True,
)
