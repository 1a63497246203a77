"""SMG's `cache_aware` (the router of SGLang, also sglang-router), with its defaults.

A tree holds the prompts that this router sent, and their workers. If load is even, the request goes
to the worker that first got its longest known beginning, if that is more than `CACHE_THRESHOLD` of
it, otherwise to the least loaded one. Load is uneven if the most requests of a worker are more than
`BALANCE_ABS` above the fewest and more than `BALANCE_REL` times as many; then the least loaded
worker is chosen. A worker's load is this router's requests there. Every `EVICT_EVERY_S` each
worker's part of the tree is cut to `MAX_TREE_BYTES`, least recently used leaves first.

Sources: https://github.com/lightseekorg/smg docs/concepts/routing/cache-aware.md and
model_gateway/src/policies/cache_aware.rs; https://github.com/sgl-project/sglang
sgl-model-gateway/src/policies/{cache_aware,tree}.rs; defaults as in the command line of the package
sglang-router 0.3.2 (the documentation says 120 s for the eviction).

Simplified: prompts are compared by chunks of 256 bytes instead of characters. A prompt becomes
recent when it is inserted (there, also by one in eight matches). If the first worker of a beginning
has lost it, the next one that got it follows (there, any). The mesh that shares trees between
routers is optional and not simulated, nor are the trees fed by KV events.
"""

from typing import TYPE_CHECKING

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_sim.fleet.routing.interfaces import Member, Question
from pando_sim.policies.local import Local
from pando_sim.policies.sent import Sent, split
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

CACHE_THRESHOLD = 0.3
BALANCE_ABS = 64
BALANCE_REL = 1.5
EVICT_EVERY_S = 60.0
MAX_TREE_BYTES = 2**26  # per worker


class CacheAware:
    def __init__(self, context: "Context") -> None:
        self._context = context
        self._tree = Sent()
        self._evict_s = EVICT_EVERY_S

    def choose(self, question: Question) -> tuple[Member, int]:
        self._evict()
        keys, members = split(question.keys), question.allowed
        loads = [self._context.in_flight(member) for member in members]
        least = members[loads.index(min(loads))]
        if max(loads) - min(loads) > BALANCE_ABS and max(loads) > BALANCE_REL * min(loads):
            return self._send(least, keys)
        owner, depth = self._match(keys)
        if depth * CHUNK_BYTES <= CACHE_THRESHOLD * question.prompt_bytes:
            return self._send(least, keys)
        for member in members:
            if member.name == owner:
                return self._send(member, keys)
        if all(member.name != owner for member in self._context.members()):
            self._tree.forget(owner)
        return members[0], 0  # as in the original: the first healthy one; the tree learns nothing

    def _match(self, keys: list[bytes]) -> tuple[str, int]:
        """The first worker of the longest known beginning, and its chunks; "" and 0 if none."""
        owner, depth = "", 0
        for key in keys:
            replicas = self._tree.replicas.get(key)
            if replicas is None:
                break
            owner, depth = replicas[0], depth + 1
        return owner, depth

    def _send(self, member: Member, keys: list[bytes]) -> tuple[Member, int]:
        held = 0
        for key in keys:
            if member.name not in self._tree.replicas.get(key, ()):
                break
            held += 1
        self._tree.add(member.name, reversed(keys))  # a leaf is less recent than its parent
        return member, held

    def _evict(self) -> None:
        now_s = self._context.monotonic_s()
        if now_s < self._evict_s:
            return
        self._evict_s = now_s - now_s % EVICT_EVERY_S + EVICT_EVERY_S
        for name in self._tree.known():
            self._tree.trim(name, MAX_TREE_BYTES // CHUNK_BYTES)


SMG = SimulatedPolicy(
    name="smg",
    whose="SMG, sglang-router: `cache_aware`",
    help="the replica that first got the longest known beginning, if that is above 0.3 of the"
    " prompt; else, and where loads differ by more than 64 and by more than 1.5 times, the least"
    " loaded",
    source="[its page](https://github.com/lightseekorg/smg/blob/main/docs/concepts/routing/"
    "cache-aware.md), its code, defaults of sglang-router 0.3.2",
    make=lambda context, spec: Local(CacheAware(context)),
)
