"""Why a request would go where it would go, without placing it; and why a past one went there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from pando_fleet.placement.prefix import KEY_BYTES
from pando_fleet.redis.layout.rows import Candidate
from pando_router.configuration.settings import PolicyName
from pando_router.errors import unavailable
from pando_router.exchange.past import Past
from pando_router.explaining import reasons
from pando_router.placing.dispatch import Dispatcher
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.route import Prompt
from pando_router.policies import POLICIES


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of a request that is not placed. Times are in seconds; `candidates` stand cheapest first,
    after them those that are `full`: never chosen, whatever they hold."""

    model: str
    pool: str
    policy: PolicyName
    prompt_tokens: int  # estimated
    chunks: int  # keys of the prompt
    chosen: str | None  # a replica, where the policy is not a matter of turns or chance
    reason: str
    candidates: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PastExplanation:
    """Of a try to have a request answered."""

    request_id: str
    at: float  # Unix time, seconds
    model: str
    pool: str
    policy: PolicyName
    tenant: str
    chunks: int
    chosen: str
    reason: str
    status: int  # 0 while no answer has come
    prompt_tokens: int | None  # by the replica's word
    predicted_tokens: int  # expected to be cached
    cached_tokens: int | None  # by the replica's word
    hit: reasons.Hit
    hit_reason: str
    candidates: list[dict[str, Any]]  # the chosen one, or all where the request wanted that


async def explain(
    dispatcher: Dispatcher, policies: PoolPolicies, prompt: Prompt, is_up: Callable[[str], bool]
) -> Explanation:
    """`is_up` says whether Redis serves a pool. Raises ApiError 503 where it does not, or where no
    replica is ready, FleetError."""
    found = next(dispatcher.candidates(prompt, ()), None)
    if found is None:
        raise unavailable("no replica is ready", "no_ready_replica")
    target, members = found
    if not is_up(target.pool):
        raise unavailable("Redis is away, and with it every candidate's terms", "redis_away")
    ask = dispatcher.ask(target, prompt, members)
    candidates = await dispatcher.placer(target.pool).explain(ask)
    policy = policies.name(target.pool, prompt.steering.policy)
    if not POLICIES[policy].is_stateless:  # it would count a turn
        chosen, reason = None, f"policy {policy} does not look at cost"
    elif picked := policies.of(target.pool, policy).pick(prompt, members):
        chosen = picked.beat.replica
        reason = f"policy {policy} gives it to {chosen}"
    else:  # the policy leaves it to the shared placement
        chosen = candidates[0].replica if candidates and not candidates[0].full else None
        reason = reasons.choice(candidates)
    return Explanation(
        model=target.model,
        pool=target.pool,
        policy=policy,
        prompt_tokens=ask.prompt_tokens,
        chunks=len(prompt.keys) // KEY_BYTES,
        chosen=chosen,
        reason=reason,
        candidates=_shown(candidates),
    )


def explain_past(past: Past) -> PastExplanation:
    placement, report = past.placement, past.tried.report
    hit, hit_reason = reasons.past_hit(past)
    candidates: Sequence[Candidate] = ()
    if placement is not None:
        candidates = placement.candidates or (placement.chosen.candidate,)
    return PastExplanation(
        request_id=past.request_id,
        at=past.at,
        model=past.model,
        pool=past.pool,
        policy=past.policy,
        tenant=past.tenant,
        chunks=past.chunks,
        chosen=past.replica,
        reason=reasons.past_choice(past),
        status=past.tried.status,
        prompt_tokens=report.prompt_tokens if report else None,
        predicted_tokens=placement.chosen.matched_tokens if placement else 0,
        cached_tokens=report.cached_tokens if report else None,
        hit=hit,
        hit_reason=hit_reason,
        candidates=_shown(candidates),
    )


def _shown(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """With the KV space that is not pinned, cached or not."""
    return [
        {**asdict(c), "unpinned_tokens": max(0, c.capacity_tokens - c.pinned_tokens)}
        for c in candidates
    ]
