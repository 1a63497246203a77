"""`Policy`: chooses a replica for a request; `PolicyKind`: its entry in the registry."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.loads import Loads


class Policy(Protocol):
    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT | None:
        """One of `replicas` (at least one, sorted by name); None: by the shared state in Redis."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    name: str
    help: str  # completes "a request goes to"
    make: Callable[[Loads, random.Random], Policy]
    # The choice depends on the request and the replicas alone, so `/route/explain` may ask for it.
    # Other policies count turns or draw lots.
    is_stateless: bool = False
