"""Variations of a run: a point that is good only for exactly this trace is on a cliff."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pando_sim.fleet.control import FleetControl
from pando_sim.fleet.fault import Fault
from pando_sim.request import Request
from pando_sim.spec import FleetSpec
from pando_sim.tuning.excerpt import Excerpt
from pando_sim.worker.replica import ReplicaState

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    name: str
    speed: float = 1.0  # of arrivals
    start_factor: float = 1.0  # of the time that a replica takes to start
    loses_replica: bool = False  # in the busiest minute


AS_RECORDED = Variation(name="as recorded")
VARIATIONS = (
    Variation(name="arrivals 20 % up", speed=1.2),
    Variation(name="arrivals 20 % down", speed=0.8),
    Variation(name="starts take twice as long", start_factor=2.0),
    Variation(name="a replica is lost", loses_replica=True),
)


def varied(excerpt: Excerpt, variation: Variation) -> Excerpt:
    speed = variation.speed
    if speed == 1.0:
        return excerpt
    requests = [replace(one, at_s=one.at_s / speed) for one in excerpt.requests]
    return replace(
        excerpt, requests=requests, edges_s=tuple(edge / speed for edge in excerpt.edges_s)
    )


def varied_spec(spec: FleetSpec, variation: Variation) -> FleetSpec:
    start_s = spec.worker.start_s * variation.start_factor
    return replace(spec, worker=replace(spec.worker, start_s=start_s))


def faults(requests: Sequence[Request], variation: Variation) -> list[Fault]:
    if not variation.loses_replica:
        return []
    return [Fault(busiest_s(requests), "the oldest replica is lost", _lose)]


def busiest_s(requests: Sequence[Request]) -> float:
    """The middle of the minute with the most arrivals."""
    counts: dict[int, int] = {}
    for one in requests:
        minute = int(one.at_s // MINUTE_S)
        counts[minute] = counts.get(minute, 0) + 1
    busiest = max(counts, key=lambda minute: (counts[minute], -minute))
    return min((busiest + 0.5) * MINUTE_S, requests[-1].at_s)


async def _lose(fleet: FleetControl) -> str:
    ready = [one for one in fleet.replicas() if one.state is ReplicaState.READY]
    if not ready:
        return "none is ready"
    fleet.stop(ready[0].name, leaves=False)
    return ""
