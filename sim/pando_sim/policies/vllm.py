"""vLLM's internal balancing between data-parallel engines: no cache, only load.

The smallest 4 · waiting + running requests wins. The engines' numbers arrive every 100 ms. Until
then, each choice counts as as many more waiting requests as there are front ends, because the
others will have chosen alike. Ties: the first, where each front end starts at another engine.
Source: https://github.com/vllm-project/vllm vllm/v1/engine/core_client.py
(DPLBAsyncMPClient.get_core_engine_for_request) and coordinator.py.

Simplified: engines are whole replicas; the numbers are those at the first request after 100 ms,
instead of the coordinator's last broadcast.
"""

from typing import TYPE_CHECKING

from pando_sim.fleet.routing.interfaces import Member, Question
from pando_sim.policies.local import Local
from pando_sim.policies.polled import Polled
from pando_sim.policies.simulated import SimulatedPolicy

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

WAITING_WEIGHT = 4
TOLD_EVERY_S = 0.1


class LeastScore:
    def __init__(self, context: "Context", routers: int) -> None:
        self._number, self._routers = context.number, routers
        self._engines = Polled(context, TOLD_EVERY_S)
        self._looks = 0
        self._chosen: dict[str, int] = {}  # since the last poll

    def choose(self, question: Question) -> tuple[Member, int]:
        members = question.allowed
        beats = self._engines.of(members)
        if self._engines.looks != self._looks:
            self._looks, self._chosen = self._engines.looks, {}
        first = self._number * len(members) // self._routers
        at = min(
            range(len(members)),
            key=lambda at: (
                WAITING_WEIGHT
                * (beats[at].waiting + self._routers * self._chosen.get(members[at].name, 0))
                + beats[at].running,
                (at - first) % len(members),
            ),
        )
        chosen = members[at]
        self._chosen[chosen.name] = self._chosen.get(chosen.name, 0) + 1
        return chosen, 0


VLLM = SimulatedPolicy(
    name="vllm",
    whose="vLLM: between data-parallel engines",
    help="the least of 4 · waiting + running",
    source="[its code](https://github.com/vllm-project/vllm/blob/main/vllm/v1/engine/"
    "core_client.py)",
    make=lambda context, spec: Local(LeastScore(context, spec.router.routers)),
)
