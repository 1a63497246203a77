"""The cells: slots of a replica and load, and one run of a policy in one of them."""

import asyncio
from dataclasses import dataclass
from itertools import product

import msgspec

from bench.simulator.adapters.chats import chats
from bench.simulator.placement_cells.loads import demand
from pando_sim.cost import load
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES as KNOWN
from pando_sim.report import digest
from pando_sim.spec import AdapterSpec, FleetSpec, WorkerSpec
from pando_sim.traces.adapters import Popularity

COST_MODEL = "h100x2-llama-3.3-70b-fp8"
ADAPTERS = 200
IN_HOST = 100  # of them in a replica's host memory
LOAD_S = 0.05  # 414 MB, of rank 16, from host memory into a slot
READ_S = 0.5  # from disk into host memory
REPLICAS = 8
CONVERSATIONS = 1_000
SEEDS = (1, 2)
POLICIES = ("cache_aware", "round_robin", "smg", "llm_d", "llm_d_lora", "production_stack")
LOADS = {"moderate": 0.8, "high": 1.6}
"""Of what the replicas could compute if nothing was cached (`loads.py`); about three quarters of
the prompt tokens are."""


@dataclass(frozen=True, slots=True)
class Cell:
    slots: int
    load: str

    @property
    def name(self) -> str:
        return f"{self.slots} slots, {self.load} load"


CELLS = tuple(Cell(slots, load) for slots, load in product((8, 16), LOADS))


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one cell, with one seed. Times are in seconds."""

    cell: str
    policy: str
    seed: int
    requests: int
    lost: int
    goodput: float
    ttft_p50_s: float
    ttft_p99_s: float
    hit_rate: float
    loads: int


def play(cell: Cell, policy: str, seed: int) -> Play:
    popularity = Popularity(adapters=ADAPTERS, seed=seed)
    cost = load(COST_MODEL)
    facts = cost.file.worker
    assert facts is not None
    at_one = demand(chats(CONVERSATIONS, 1.0, popularity), cost)
    per_s = LOADS[cell.load] * REPLICAS / (at_one.seconds_per_request * _turns(popularity))
    spec = FleetSpec(
        worker=WorkerSpec(
            cost_model=COST_MODEL,
            capacity_tokens=facts.capacity_tokens,
            served_adapters=AdapterSpec(
                names=popularity.names,
                slots=cell.slots,
                host=IN_HOST,
                load_s=LOAD_S,
                read_s=READ_S,
            ),
        ),
        replicas=REPLICAS,
        policy=policy,
        seed=seed,
    )
    requests = chats(CONVERSATIONS, per_s, popularity)
    ran = asyncio.run(
        simulate(spec, requests, cost=cost, policy=KNOWN[policy].factory(spec)),
    )
    seen = digest(
        ran, slow_ttft_s=spec.slow_ttft_s, slow_gap_s=spec.slow_gap_s, gpus_per_replica=2
    ).statistics
    assert seen.goodput is not None and seen.ttft is not None and seen.hit_rate is not None
    return Play(
        cell=cell.name,
        policy=policy,
        seed=seed,
        requests=seen.requests,
        lost=seen.refused + seen.failed,
        goodput=seen.goodput,
        ttft_p50_s=seen.ttft.p50,
        ttft_p99_s=seen.ttft.p99,
        hit_rate=seen.hit_rate,
        loads=seen.adapter_loads,
    )


def _turns(popularity: Popularity) -> float:
    """Requests of a conversation, on average."""
    return sum(1 for _ in chats(CONVERSATIONS, 1.0, popularity)) / CONVERSATIONS
