"""vLLM production-stack's `prefixaware` routing: the longest prefix, whatever the load.

A trie holds the prompts that this router sent, and their replicas. The walk from the root continues
while one of the remaining endpoints has the next chunk, and keeps only those that have it; one of
the endpoints that remain is drawn at random. Without a common start that is any endpoint: there is
no other fallback, and load is ignored.

Source: https://github.com/vllm-project/production-stack src/vllm_router/routers/routing_logic.py
(PrefixAwareRouter) and src/vllm_router/prefix/hashtrie.py.

Simplified: chunks are 256 bytes, and full ones only (there, 128 characters and the rest). The
original never forgets; here a router forgets the least recent of more than `MAX_CHUNKS` chunks per
replica (1 GiB of prompts), so that long runs have bounded memory.
"""

from typing import TYPE_CHECKING

from pando_sim.fleet.routing.interfaces import Member, Question
from pando_sim.policies.local import Local
from pando_sim.policies.sent import Replicas, Sent, split
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

MAX_CHUNKS = 2**22


class LongestPrefix:
    def __init__(self, context: "Context") -> None:
        self._random = context.random
        self._trie = Sent()

    def choose(self, question: Question) -> tuple[Member, int]:
        keys = split(question.keys)
        left = {member.name: member for member in question.allowed}
        depth = 0
        before: Replicas | None = None
        for key in keys:
            replicas = self._trie.replicas.get(key, ())
            if replicas is not before:
                common = {name: left[name] for name in left if name in replicas}
                if not common:
                    break
                left, before = common, replicas
            depth += 1
        chosen = self._random.choice(list(left.values()))
        self._trie.add(chosen.name, reversed(keys))
        self._trie.trim(chosen.name, MAX_CHUNKS)
        return chosen, depth


PRODUCTION_STACK = SimulatedPolicy(
    name="production_stack",
    whose="vLLM production-stack: `prefixaware`",
    help="any of those that got the longest beginning, whatever their load",
    source="[its code](https://github.com/vllm-project/production-stack/blob/main/src/vllm_router/"
    "routers/routing_logic.py)",
    make=lambda context, spec: Local(LongestPrefix(context)),
)
