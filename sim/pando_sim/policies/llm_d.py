"""llm-d's scheduler with the default scorers and weights of its chart: 2, 2 and 3.

Each replica gets a score between 0 and 1 from each of three scorers, weighted and summed. The
highest sum wins; ties take turns.

- `queue-scorer`, 2: its waiting requests between the most (0) and the fewest (1) of all; 1 for all
  if all have the same.
- `kv-cache-utilization-scorer`, 2: 1 minus the used share of its KV pool.
- `prefix-cache-scorer`, 3: the share of the prompt's blocks that this router sent there before, by
  an index of the last `capacity / page size` blocks of each replica. Blocks count until the first
  one that no replica has.

Replicas' numbers are scraped every 50 ms.

Sources: https://github.com/llm-d/llm-d-router config/charts/routerlib/templates/_config.yaml (the
weights; the same in config/charts/inferencepool of kubernetes-sigs/gateway-api-inference-extension)
and pkg/epp/framework/plugins: scheduling/scorer/{queuedepth,kvcacheutilization,prefix},
scheduling/picker/maxscore, requestcontrol/dataproducer/approximateprefix (blocks of at least 64
tokens, index sizes by the engine's number of blocks, a prompt's root less recent than its leaf).

Simplified: a block is a chunk of 256 bytes, 64 tokens at 4 bytes each. The cap of 131,072 tokens
per prompt is that of the chunks. Precise prefix scorers, flow control and latency prediction are
optional there, and not simulated.
"""

from collections.abc import Callable, Sequence
from operator import add
from typing import TYPE_CHECKING

from pando_fleet.registry.replica import Heartbeat
from pando_sim.fleet.routing.interfaces import Member, Question
from pando_sim.policies.local import Local
from pando_sim.policies.polled import Polled
from pando_sim.policies.sent import Replicas, Sent, split
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

QUEUE_WEIGHT = 2.0
KV_WEIGHT = 2.0
PREFIX_WEIGHT = 3.0
SCRAPE_EVERY_S = 0.05


Scorer = Callable[[Question, Sequence[Heartbeat]], Sequence[float]]


class Scorers:
    def __init__(self, context: "Context", page_size: int, *more: Scorer) -> None:
        """`more` scorers count as well, each with its weight."""
        self._more = more
        self._engines = Polled(context, SCRAPE_EVERY_S)
        self._page_size = page_size
        self._index = Sent()
        self._turn = 0
        self._context = context

    def choose(self, question: Question) -> tuple[Member, int]:
        members, keys = question.allowed, split(question.keys)
        beats = self._engines.of(members)
        held = self._held(keys)
        prefix = [held.get(member.name, 0) / max(len(keys), 1) for member in members]
        scores = [
            QUEUE_WEIGHT * queue + KV_WEIGHT * kv + PREFIX_WEIGHT * share
            for queue, kv, share in zip(queue_scores(beats), kv_scores(beats), prefix, strict=True)
        ]
        for scorer in self._more:
            scores = list(map(add, scores, scorer(question, beats)))
        most = max(scores)
        best = [at for at, score in enumerate(scores) if score == most]
        chosen = members[best[self._turn % len(best)]]
        self._turn += 1
        self._index.add(chosen.name, keys)
        self._index.trim(chosen.name, max(1, chosen.beat.capacity_tokens // self._page_size))
        self._forget_the_gone()
        return chosen, held.get(chosen.name, 0)

    def _held(self, keys: list[bytes]) -> dict[str, int]:
        """Blocks of the prompt sent to each replica, up to the first that none was sent."""
        held: dict[str, int] = {}
        run: Replicas = ()
        length = 0
        for key in (*keys, b""):  # no chunk has an empty key, so it ends the last run
            replicas = self._index.replicas.get(key, ())
            if replicas is not run:
                for name in run:
                    held[name] = held.get(name, 0) + length
                run, length = replicas, 0
            if not replicas:
                break
            length += 1
        return held

    def _forget_the_gone(self) -> None:
        known = self._index.known()
        if len(known) > len(self._context.members()):
            live = {member.name for member in self._context.members()}
            for name in known:
                if name not in live and self._context.look(name) is None:
                    self._index.forget(name)


def queue_scores(beats: Sequence[Heartbeat]) -> list[float]:
    waiting = [beat.waiting for beat in beats]
    most, fewest = max(waiting), min(waiting)
    if most == fewest:
        return [1.0] * len(beats)
    return [(most - count) / (most - fewest) for count in waiting]


def kv_scores(beats: Sequence[Heartbeat]) -> list[float]:
    """Evictable cached tokens count as free, as in vLLM's gauge."""
    return [1.0 - beat.pinned_tokens / max(beat.capacity_tokens, 1) for beat in beats]


LLM_D = SimulatedPolicy(
    name="llm_d",
    whose="llm-d, Gateway API inference extension",
    help="the highest sum of scores for queue (2), KV use (2) and prefix (3)",
    source="[its chart](https://github.com/llm-d/llm-d-router/blob/main/config/charts/routerlib/"
    "templates/_config.yaml) and scorers",
    make=lambda context, spec: Local(Scorers(context, spec.worker.page_size)),
)
