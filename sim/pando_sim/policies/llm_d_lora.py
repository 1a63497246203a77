"""llm-d's scheduler with the scorers of `llm_d` and its `lora-affinity-scorer`, weight 1.

A replica's score for the adapter that a request needs:

- 1.0: the adapter is in device memory there
- 0.8: it is not, but fewer adapters are there or wait than there are slots
- 0.6: requests that need it wait there
- 0.0: otherwise

Sources: https://github.com/llm-d/llm-d-router pkg/epp/framework/plugins/scheduling/scorer/
loraaffinity/lora_affinity.go (the scores; a scorer's weight is 1 where none is given), and
the model server protocol of https://github.com/kubernetes-sigs/gateway-api-inference-extension
(what an engine reports: adapters "loaded in GPU memory and ready to serve", those that wait, and
how many can be loaded).

Simplified: an adapter that no request holds makes room, so its slot counts as free. There it counts
as taken; but vLLM, of whose adapters only those of running requests are reported, counts like this.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pando_fleet.registry.adapter import AdapterPlace
from pando_fleet.registry.replica import Heartbeat
from pando_sim.fleet.routing.interfaces import Question
from pando_sim.policies.llm_d import Scorers
from pando_sim.policies.local import Local
from pando_sim.policies.simulated import SimulatedPolicy
from pando_sim.spec import FleetSpec

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context

LOADED, HAS_ROOM, WAITS, ELSE = 1.0, 0.8, 0.6, 0.0


def adapter_scores(question: Question, beats: Sequence[Heartbeat]) -> list[float]:
    if not question.request.adapter:
        return [ELSE] * len(beats)
    return [_score(question.request.adapter, beat) for beat in beats]


def _score(name: str, beat: Heartbeat) -> float:
    adapter = beat.adapter(name)
    place = AdapterPlace.DISK if adapter is None else adapter.place
    if place is AdapterPlace.DEVICE:
        return LOADED
    if beat.free_adapter_slots > beat.adapters_waiting:
        return HAS_ROOM
    return WAITS if place is AdapterPlace.WAITING else ELSE


def _make(context: "Context", spec: FleetSpec) -> Local:
    return Local(Scorers(context, spec.worker.page_size, adapter_scores))


LLM_D_LORA = SimulatedPolicy(
    name="llm_d_lora",
    whose="llm-d with its LoRA affinity scorer",
    help="the highest sum of those scores and one for the adapter (1): 1.0 where it is loaded, 0.8"
    " where there is room for it",
    source="[its scorer](https://github.com/llm-d/llm-d-router/blob/main/pkg/epp/framework/plugins/"
    "scheduling/scorer/loraaffinity/lora_affinity.go)",
    make=_make,
)
