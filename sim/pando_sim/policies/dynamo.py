"""NVIDIA Dynamo's KV router with its defaults: the cheapest replica, counted in KV blocks.

    prefill = max(0, (tokens of prompts under way there + the prompt's) / block size - overlap)
    decode  = blocks of active requests there, the request's own included
    cost    = 1.0 · prefill + decode

`overlap` is how many of the prompt's blocks the replica holds; engines report each change of their
caches by events. Prompts in progress count with their uncached tokens, until their first token.
Active requests count with their prompts' blocks until they end; a shared block counts once. All of
it covers only what this router sent, because the router's replicas do not share it by default
(`router_replica_sync` is off). At temperature 0 the lowest cost wins.

Sources: https://docs.nvidia.com/dynamo/components/router/routing-concepts and
https://github.com/ai-dynamo/dynamo docs/components/router/router-concepts.md,
lib/kv-router/src/scheduling/{selector,config}.rs (`overlap_score_credit` 1.0, formerly the overlap
weight; `prefill_load_scale` 1.0, `router_temperature` 0.0, `router_track_output_blocks` false).

Simplified: a block is a chunk of 256 bytes, 64 tokens at 4 bytes each (there, the engine's page).
Events arrive at once. Ties are broken at random (there, by the order of a hash table). A host
tier's blocks, credited with 0.75 there, count in full if a replica would load them. The router's
queue, which holds requests back only while every worker has 16 batches of prompts ahead of it, is
not simulated.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.core.route import Route
from pando_sim.fleet.routing.interfaces import Member, Question
from pando_sim.policies.local import route_to
from pando_sim.policies.sent import split
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context


@dataclass(slots=True)
class ProcessLoad:
    """This router's requests at one process of a replica."""

    requests: int = 0  # a short prompt has no block
    prefill_tokens: int = 0
    blocks: Counter[bytes] = field(default_factory=Counter)  # with how many requests share each


@dataclass(slots=True)
class Active:
    """An active request, as the lease of its route."""

    policy: "KvRouter"
    incarnation: str
    keys: list[bytes]
    prefill_tokens: int  # until its first token

    def answered(self, *, complete: bool) -> None:
        load = self.policy.loads[self.incarnation]
        load.prefill_tokens -= self.prefill_tokens
        self.prefill_tokens = 0

    def correct(self, chunks: int) -> None:
        """Does nothing: the engines' events have already reported it."""

    def close(self) -> None:
        self.answered(complete=True)
        load = self.policy.loads[self.incarnation]
        for key in self.keys:
            load.blocks[key] -= 1
            if not load.blocks[key]:
                del load.blocks[key]
        load.requests -= 1
        if not load.requests:
            del self.policy.loads[self.incarnation]


class KvRouter:
    def __init__(self, context: "Context") -> None:
        self._context = context
        self.loads: dict[str, ProcessLoad] = {}  # by incarnation

    async def place(self, question: Question) -> Route:
        keys = split(question.keys)
        prompt = question.request.prompt.tokens()
        adapter = question.request.adapter
        cached = [
            self._context.cached_tokens(member.name, prompt, adapter) for member in question.allowed
        ]
        costs = [
            self._cost(question, keys, member, tokens)
            for member, tokens in zip(question.allowed, cached, strict=True)
        ]
        least = min(costs)
        at = self._context.random.choice([at for at, cost in enumerate(costs) if cost == least])
        chosen, overlap = question.allowed[at], int(cached[at] / block_tokens(question))
        return route_to(question, chosen, overlap, self._add(question, keys, chosen, cached[at]))

    def close(self) -> None:
        pass

    def _cost(
        self, question: Question, keys: list[bytes], member: Member, cached_tokens: int
    ) -> float:
        load = self.loads.get(member.beat.incarnation) or ProcessLoad()
        # A holder of a block has all before it, so those shared with active requests come first.
        shared = bisect_left(keys, True, key=lambda key: key not in load.blocks)
        return cost(
            prefill_blocks=(load.prefill_tokens + question.prompt_tokens) / block_tokens(question),
            overlap_blocks=int(cached_tokens / block_tokens(question)),
            decode_blocks=len(load.blocks) + len(keys) - shared,
        )

    def _add(
        self, question: Question, keys: list[bytes], chosen: Member, cached_tokens: int
    ) -> Active:
        load = self.loads.setdefault(chosen.beat.incarnation, ProcessLoad())
        tokens = max(0, question.prompt_tokens - cached_tokens)
        load.requests += 1
        load.prefill_tokens += tokens
        load.blocks.update(keys)
        return Active(self, chosen.beat.incarnation, keys, tokens)


def block_tokens(question: Question) -> float:
    return CHUNK_BYTES * question.prompt_tokens / max(question.prompt_bytes, 1)


def cost(*, prefill_blocks: float, overlap_blocks: float, decode_blocks: float) -> float:
    """The cost in blocks.

    Args:
        prefill_blocks: of all prompts in progress and this one, cached or not.
        decode_blocks: of all active requests and this one.
    """
    return max(0.0, prefill_blocks - overlap_blocks) + decode_blocks


DYNAMO = SimulatedPolicy(
    name="dynamo",
    whose="NVIDIA Dynamo: KV router",
    help="the fewest blocks to prefill and to decode together, at temperature 0",
    source="[its page](https://docs.nvidia.com/dynamo/components/router/routing-concepts) and its"
    " code",
    make=lambda context, spec: KvRouter(context),
)
