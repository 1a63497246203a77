"""What the pools of this operator want of each kind of GPU, and what each may have now."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pando_operator.kube.resources import Key
from pando_operator.lifecycle.pods import PodView
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.scaling import Mode
from pando_operator.scaling import Claim, Grant, grants


class GpuShares:
    """One for all pools. Their loops run one after the other, so each sees what the last has got.

    Args:
        budget: how many GPUs there are, by kind. Others have no limit.
        pools: all pools, also those that have claimed nothing yet.
    """

    def __init__(self, budget: Mapping[str, int], pools: Callable[[], Collection[Key]]) -> None:
        self._budget, self._pools = budget, pools
        self._claims: dict[Key, tuple[str, Claim]] = {}
        self._seen: set[Key] = set()

    def grant(self, key: Key, pool: WorkerPool, wanted: int, held: "HeldGpus") -> Grant:
        """How many replicas the pool may have. From now on it holds as many as it gets.

        Args:
            wanted: by its load, or by its spec.
        """
        kind = pool.spec.gpu_type
        if kind is None or kind not in self._budget:
            self._claims.pop(key, None)
            return Grant(wanted)
        scaling = pool.spec.scaling
        least = scaling.min_replicas if scaling.mode is Mode.AUTO else 1
        gpus, priority = pool.spec.tensor_parallel_size, scaling.priority
        claim = Claim(
            pool=str(key),
            wanted=wanted,
            least=least,
            held=held.all,
            kept=held.kept,
            gpus=gpus,
            priority=priority,
        )
        self._claims[key] = kind, claim
        if set(self._pools()) - self._seen - {key}:
            # After a start of the operator: others may hold GPUs that nobody has claimed yet.
            return Grant(min(wanted, held.kept), "the other pools' GPUs are not known yet")
        rivals = (claim for mine, claim in self._claims.values() if mine == kind)
        granted = grants(rivals, kind, self._budget[kind])[str(key)]
        self._claims[key] = (
            kind,
            replace(claim, held=granted.holds, kept=max(held.kept, granted.replicas)),
        )
        return granted

    def seen(self, key: Key) -> None:
        """The pool has claimed what it holds, or can claim nothing."""
        self._seen.add(key)

    def forget(self, key: Key) -> None:
        """The pool is deleted."""
        self._seen.discard(key)
        self._claims.pop(key, None)


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """Numbers of replicas with GPUs, or that may get some at any time."""

    all: int
    kept: int  # without those that are being deleted: a drain can be undone

    @classmethod
    def of(cls, pods: Sequence[PodView], replicas: int, now: float) -> "HeldGpus":
        """`replicas`: the Deployment's."""
        alive = sum(pod.is_alive for pod in pods)
        ending = sum(pod.deleting and not pod.finished and not pod.is_ghost(now) for pod in pods)
        kept = max(alive, replicas)
        return cls(kept + ending, kept)
