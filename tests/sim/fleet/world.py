"""Small fleets: prompts by name, and a run in one call."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.records.marks import MarkKind
from pando_sim.fleet.control import FleetControl, Scaler
from pando_sim.fleet.fault import Fault
from pando_sim.fleet.routing.context import PolicyFactory
from pando_sim.fleet.routing.shared_placement import SharedPlacement
from pando_sim.fleet.simulate import simulate
from pando_sim.records import Run, Served
from pando_sim.request import Request
from pando_sim.spec import FleetSpec, RouterSpec, WorkerSpec
from tests.sim.fleet.costs import LinearCost

COST = LinearCost()


@dataclass(frozen=True, slots=True)
class Words:
    """A prompt of blocks of 64 tokens, each given by a number."""

    blocks: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return 64 * len(self.blocks)

    @property
    def num_bytes(self) -> int:
        return 4 * self.num_tokens

    def tokens(self) -> NDArray[np.int32]:
        return np.repeat(np.array(self.blocks, dtype=np.int32), 64)

    def keys(self) -> bytes:
        return chunk_keys(self.tokens().tobytes(), 1)


def request(number: int, at_s: float, *blocks: int, output: int = 20) -> Request:
    return Request(number=number, at_s=at_s, prompt=Words(blocks), output_tokens=output)


def conversations(count: int, turns: int, every_s: float) -> list[Request]:
    """Turns of conversations with a common start, each longer than the previous one."""
    found = []
    for number in range(count * turns):
        turn, who = divmod(number, count)
        own = range(1000 * (who + 1), 1000 * (who + 1) + 2 * turn + 2)
        blocks = (1, 2, 3, *own)
        found.append(request(number, number * every_s, *blocks, output=5 + 7 * who % 40))
    return found


WORKER = WorkerSpec(
    cost_model="linear",
    capacity_tokens=16_384,
    context_length=8_192,
    chunked_prefill_size=256,
    max_running_requests=16,
)
SPEC = FleetSpec(worker=WORKER, replicas=3, sample_s=0.7)


@dataclass
class Calls:
    """A scaler that runs the given actions when it is called."""

    act_at: Callable[[FleetControl], None]
    every_s: float = 0.25
    sets_marks: bool = False
    seen: list[object] = field(default_factory=list)

    async def act(self, fleet: FleetControl) -> None:
        self.act_at(fleet)

    def ended(self, request: Request, served: Served) -> None: ...

    def prefilled(self, kind: MarkKind, tokens: int) -> None: ...

    def close(self, fleet: FleetControl) -> None: ...


def run(
    requests: Sequence[Request],
    spec: FleetSpec = SPEC,
    *,
    policy: PolicyFactory | None = None,
    scaler: Scaler | None = None,
    faults: Sequence[Fault] = (),
    strides: bool = True,
) -> Run:
    return asyncio.run(
        simulate(
            spec,
            iter(requests),
            cost=COST,
            policy=policy or (lambda context: SharedPlacement(context, spec.router)),
            scaler=scaler,
            faults=faults,
            strides=strides,
        )
    )


def fault(at_s: float, act: Callable[[FleetControl], object]) -> Fault:
    async def acts(fleet: FleetControl) -> str:
        act(fleet)
        return ""

    return Fault(at_s, "a fault", acts)


def outage(from_s: float, until_s: float, *, empty: bool = False) -> list[Fault]:
    """Of Redis."""

    async def back(fleet: FleetControl) -> str:
        await fleet.regain_redis(empty=empty)
        return ""

    return [fault(from_s, lambda fleet: fleet.lose_redis()), Fault(until_s, "its end", back)]


def by_number(found: Run) -> list[Served]:
    return sorted(found.served, key=lambda served: served.number)


def with_router(**values: object) -> FleetSpec:
    return replace(SPEC, router=replace(RouterSpec(), **values))  # type: ignore[arg-type]


def with_worker(**values: object) -> FleetSpec:
    return replace(SPEC, worker=replace(WORKER, **values))  # type: ignore[arg-type]
