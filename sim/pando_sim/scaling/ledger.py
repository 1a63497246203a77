"""`Ledger`: what each change of a pool's size cost its requests.

A step that grows the pool takes effect when its number of replicas is ready; one that shrinks it,
when the leaving replicas are gone. A late first token is charged to the oldest step that was
decided but had not taken effect while its request waited. Tokens that a replica held when it left,
and that a request then had to compute because no other replica held them, are charged to the step
that removed it, each once and within `LOST_S`: later requests would have missed them anyway.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isnan

from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.records.marks import MarkKind
from pando_sim.fleet.control import Cache, FleetControl
from pando_sim.records import ScalingStep, Served
from pando_sim.request import Request
from pando_sim.worker.replica import ReplicaState

LOST_S = 600.0
KEPT_S = 600.0
"""How long a step stays open after its effect: a request ends later than it arrives."""


@dataclass(slots=True, eq=False)
class _Step:
    at_s: float
    before: int
    after: int
    reason: str
    effect_s: float | None = None
    ready_s: float | None = None
    recomputed_tokens: float = 0.0
    delayed_requests: int = 0
    prefilled_tokens: int = 0

    @property
    def grows(self) -> bool:
        return self.after > self.before


@dataclass(slots=True, eq=False)
class _Lost:
    """The cache of a replica that has left, or is about to."""

    cache: Cache
    since_s: float
    step: _Step
    counted: set[bytes] = field(default_factory=set)  # chunks that were computed again


class Ledger:
    """Call `look` often, `ended` for each request, and `close` at the end."""

    def __init__(self, slow_ttft_s: float) -> None:
        self._slow_ttft_s = slow_ttft_s
        self._steps: list[_Step] = []
        self._recent: deque[_Step] = deque()
        self._lost: dict[str, _Lost] = {}  # by replica, in the order of leaving
        self._others: dict[str, Cache] = {}  # of the remaining replicas

    def step(self, at_s: float, before: int, after: int, reason: str) -> None:
        for one in self._recent:
            if one.effect_s is None and (one.after > one.before) is (after < before):
                one.effect_s = at_s  # it is reverted
        step = _Step(at_s, before, after, reason)
        self._steps.append(step)
        self._recent.append(step)

    def look(self, fleet: FleetControl, leaving: Iterable[str]) -> None:
        """Records which replicas are ready and which leave now."""
        now_s, going = fleet.now_s, dict.fromkeys(leaving)
        stay = [replica for replica in fleet.replicas() if replica.name not in going]
        self._others = {
            replica.name: fleet.cache(replica.name)
            for replica in stay
            if replica.state is not ReplicaState.STARTING
        }
        self._follow_leaving(fleet, going)
        ready = sorted(replica.ready_s for replica in stay if replica.ready_s is not None)
        there = len(fleet.replicas())
        for step in self._recent:
            if step.effect_s is not None:
                continue
            if step.after > step.before and len(ready) >= step.after:
                step.ready_s = step.effect_s = max(step.at_s, ready[step.after - 1])
            elif step.after < step.before and there <= step.after:
                step.effect_s = now_s
        while self._recent and (self._recent[0].effect_s or now_s) < now_s - KEPT_S:
            self._recent.popleft()

    def ended(self, request: Request, served: Served) -> None:
        if not served.ttft_s <= self._slow_ttft_s:  # also nan: there was none
            until_s = served.end_s if isnan(served.first_token_s) else served.first_token_s
            for step in self._recent:
                is_open = step.effect_s is None or served.arrival_s < step.effect_s
                if is_open and step.at_s <= until_s:
                    step.delayed_requests += 1
                    break
        if self._lost and served.cached_tokens < served.prompt_tokens:
            self._charge(request, served)

    def prefilled(self, kind: MarkKind, tokens: int) -> None:
        """Charges the last step that grew the pool, or shrank it."""
        grows = kind is MarkKind.WARM
        step = next((one for one in reversed(self._steps) if one.grows is grows), None)
        if step is not None:  # otherwise a dead replica has come back
            step.prefilled_tokens += tokens

    def close(self, fleet: FleetControl) -> None:
        """Reports all steps."""
        for step in self._steps:
            fleet.record(
                ScalingStep(
                    at_s=step.at_s,
                    before=step.before,
                    after=step.after,
                    reason=step.reason,
                    ready_s=step.ready_s,
                    recomputed_tokens=round(step.recomputed_tokens),
                    delayed_requests=step.delayed_requests,
                    prefilled_tokens=step.prefilled_tokens,
                )
            )

    def _follow_leaving(self, fleet: FleetControl, going: dict[str, None]) -> None:
        now_s = fleet.now_s
        here = [replica.name for replica in fleet.replicas()]
        for name in here:
            if name in self._lost and name not in going:
                del self._lost[name]  # its removal was cancelled
        shrunk = next((step for step in reversed(self._steps) if step.after < step.before), None)
        for name in here:
            if name in going and name not in self._lost and shrunk is not None:
                self._lost[name] = _Lost(fleet.cache(name), now_s, shrunk)
        self._lost = {
            name: lost
            for name, lost in self._lost.items()
            if name in going or now_s - lost.since_s <= LOST_S
        }

    def _charge(self, request: Request, served: Served) -> None:
        lost = [one for one in self._lost.values() if one.since_s <= served.placed_s]
        if not lost:
            return
        tokens = request.prompt.tokens()
        had = [(one, one.cache.cached_tokens(tokens)) for one in lost]
        most = max(tokens for _, tokens in had)
        if most <= served.cached_tokens:
            return
        others = (cache for name, cache in self._others.items() if name != served.replica)
        kept = max((cache.cached_tokens(tokens) for cache in others), default=0)
        by_chunk = served.prompt_tokens * CHUNK_BYTES / request.prompt.num_bytes  # tokens
        keys = request.prompt.keys()
        for chunk in range(int(max(kept, served.cached_tokens) / by_chunk), int(most / by_chunk)):
            key = keys[chunk * KEY_BYTES : (chunk + 1) * KEY_BYTES]
            holders = [
                one for one, held in had if chunk < int(held / by_chunk) and key not in one.counted
            ]
            for one in holders:
                one.counted.add(key)
            if holders:
                holders[-1].step.recomputed_tokens += by_chunk
