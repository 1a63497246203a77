"""Explains where a request would be placed, without placing it, and why a past one was placed."""

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
    """The explanation of a request that is not placed. Times are in seconds. `candidates` are
    sorted by cost; those that are `full`, and never chosen, are last."""

    model: str
    pool: str
    policy: PolicyName
    prompt_tokens: int  # estimated
    images: list[str]  # in words, with their estimated tokens
    chunks: int  # number of chunk keys of the prompt
    chosen: str | None  # a replica; None if the policy chooses by turn or at random, or it waits
    reason: str
    candidates: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PastExplanation:
    """The explanation of one try of a past request."""

    request_id: str
    at: float  # Unix time, seconds
    model: str
    pool: str
    policy: PolicyName
    tenant: str
    images: list[str]  # as in `Explanation`
    chunks: int
    chosen: str
    reason: str
    status: int  # 0 before the answer
    prompt_tokens: int | None  # as the replica reported
    predicted_tokens: int  # prompt tokens expected to be cached
    cached_tokens: int | None  # as the replica reported
    hit: reasons.Hit
    hit_reason: str
    candidates: list[dict[str, Any]]  # the chosen one, or all if the request asked for them


async def explain(
    dispatcher: Dispatcher, policies: PoolPolicies, prompt: Prompt, is_up: Callable[[str], bool]
) -> Explanation:
    """`is_up` returns whether Redis serves a pool. Raises FleetError, and ApiError 503 if Redis is
    away for the pool or no replica is ready."""
    found = next(dispatcher.candidates(prompt, ()), None)
    if found is None:
        raise unavailable("no replica is ready", "no_ready_replica")
    target, members = found
    if not is_up(target.pool):
        raise unavailable("Redis is away, so the candidates' costs are unknown", "redis_away")
    ask = dispatcher.ask(target, prompt, members)
    placer = dispatcher.placer(target.pool)
    candidates = await placer.explain(ask)
    crowded = await placer.crowd(ask) if ask.bounds_sessions else None
    policy = policies.name(target.pool, prompt.steering.policy)
    if crowded is not None:
        chosen, reason = None, reasons.waits_for_memory(crowded)
    elif not POLICIES[policy].is_stateless:  # explaining would count a turn
        chosen, reason = None, f"policy {policy} does not consider costs"
    elif picked := policies.of(target.pool, policy).pick(prompt, members):
        chosen = picked.beat.replica
        reason = f"policy {policy} chooses {chosen}"
    else:  # the policy leaves it to the shared placement
        chosen = candidates[0].replica if candidates and not candidates[0].full else None
        reason = reasons.choice(candidates, ask.prompt_tokens)
    return Explanation(
        model=target.model,
        pool=target.pool,
        policy=policy,
        prompt_tokens=ask.prompt_tokens,
        images=reasons.images(prompt.request.images),
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
        images=reasons.images(past.images),
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
    """Adds the KV space that is not pinned, cached or not."""
    return [
        {**asdict(c), "unpinned_tokens": max(0, c.capacity_tokens - c.pinned_tokens)}
        for c in candidates
    ]
