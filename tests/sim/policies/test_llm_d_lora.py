"""The scores of llm-d's LoRA affinity scorer, as its source defines them."""

from dataclasses import replace

import pytest

from pando_fleet.registry.adapter import Adapter, AdapterPlace
from pando_fleet.registry.replica import Heartbeat
from pando_sim.policies import llm_d_lora
from tests.sim.fleet.world import SPEC, request
from tests.sim.policies.routers import beat, fleet, question


def holding(place: AdapterPlace, free: int, waiting: int = 0) -> Heartbeat:
    return beat(
        "a",
        adapter_states=(Adapter(name="pirate", place=place),),
        adapter_slots=2,
        free_adapter_slots=free,
        adapters_waiting=waiting,
    )


@pytest.mark.parametrize(
    ("there", "score"),
    [
        (holding(AdapterPlace.DEVICE, 0), 1.0),
        (holding(AdapterPlace.HOST, 1), 0.8),
        (holding(AdapterPlace.HOST, 1, waiting=1), 0.0),
        (holding(AdapterPlace.WAITING, 0, waiting=1), 0.6),
        (holding(AdapterPlace.HOST, 0), 0.0),
        (beat("a"), 0.0),
    ],
)
def test_each_state_of_an_adapter_has_its_score(there: Heartbeat, score: float) -> None:
    asked = replace(request(0, 0.0, 1), adapter="pirate")
    known = fleet("a")
    assert llm_d_lora.adapter_scores(question(known, asked), [there]) == [score]
    base = question(known, request(0, 0.0, 1))
    assert llm_d_lora.adapter_scores(base, [there]) == [0.0]


async def test_it_counts_beside_the_others() -> None:
    known = fleet("a", "b")
    known.beats["b"] = replace(holding(AdapterPlace.DEVICE, 0), replica="b")
    policy = llm_d_lora.LLM_D_LORA.make(known, SPEC)
    asked = question(known, replace(request(0, 0.0, 1), adapter="pirate"))
    assert (await policy.place(asked)).replica == "b"  # type: ignore[union-attr]
    known.time_s = 1.0
    known.beats["b"] = replace(known.beats["b"], waiting=5)  # loses 2 of 8, for 1
    asked = question(known, replace(request(1, 0.0, 2), adapter="pirate"))
    assert (await policy.place(asked)).replica == "a"  # type: ignore[union-attr]
