"""Why a request would go where it would go: every candidate's terms, without placing anything."""

from dataclasses import dataclass

from pando_fleet.placement import Candidate
from pando_router.dispatch import Dispatcher
from pando_router.errors import unavailable
from pando_router.route import Prompt


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer of /route/explain. Times are in seconds; `candidates` stand cheapest first."""

    model: str
    pool: str
    policy: str
    prompt_tokens: int  # estimated
    chunks: int  # keys of the prompt
    chosen: str | None  # a replica, where the policy looks at cost
    reason: str
    candidates: list[Candidate]


async def explain(
    dispatcher: Dispatcher, prompt: Prompt, policy: str, redis_up: bool
) -> Explanation:
    """Raises ApiError 503 where no replica is ready or Redis is away, FleetError."""
    if not redis_up:
        raise unavailable("Redis is away, and with it every candidate's terms", "redis_away")
    found = dispatcher.choices(prompt)
    if found is None:
        raise unavailable("no replica is ready", "no_ready_replica")
    target, members = found
    ask = dispatcher.ask(target, prompt, members)
    candidates = await dispatcher.placer(target.pool).explain(ask)
    weighs = policy == "cache_aware"
    return Explanation(
        model=target.model,
        pool=target.pool,
        policy=policy,
        prompt_tokens=ask.prompt_tokens,
        chunks=len(prompt.keys) // 8,
        chosen=candidates[0].replica if candidates and weighs else None,
        reason=_reason(candidates) if weighs else f"policy {policy} does not look at cost",
        candidates=candidates,
    )


def _reason(candidates: list[Candidate]) -> str:
    if not candidates:
        return "no candidate is fresh and ready by Redis's clock"
    best = candidates[0]
    words = (
        f"{best.replica} delays least, {best.cost_s:.4f} s: waits {best.wait_s:.4f} s for prefills"
        f" and {best.kv_wait_s:.4f} s for KV space, then computes {best.work_s:.4f} s"
        f" ({best.matched_tokens} tokens cached) while {best.queue:.2f} requests a replica wait"
    )
    if len(candidates) > 1:
        words += f"; next is {candidates[1].replica} with {candidates[1].cost_s:.4f} s"
    return words
