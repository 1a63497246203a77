"""The contenders: scalers, each with the one knob that trades replica-hours for late requests."""

from dataclasses import dataclass
from typing import Any

from bench.simulator.scaling_days.loads import Load
from pando.sim.manifest import NONE
from pando_operator.resource.parse import parse
from pando_operator.resource.pool import WorkerPool

FIRST_REPLICAS, MOST_REPLICAS = 1, 16
QUEUE_WAIT_S = 1.0  # half of the limit for a first token
STARTS_S = (60.0, 180.0)

TTFT_S, ITL_S = 2.0, 0.05  # what a request in time keeps

PANDO = ("pando", "pando, queueWait")
KNOBS = {
    "pando": "target.pressure",
    "pando, queueWait": f"target.pressure, queueWaitSeconds: {QUEUE_WAIT_S:g}",
    "pando, latency": f"percentile of ttftSeconds: {TTFT_S:g}, interTokenSeconds: {ITL_S:g}",
    "dynamo_planner": f"part of the same {TTFT_S:g} s and {ITL_S:g} s that it aims for",
    "hpa_queue": "waiting requests a replica",
    "hpa_kv": "share of KV room in use",
    "knative": "requests at a time in a replica",
}


@dataclass(frozen=True, slots=True)
class Contender:
    scaler: str  # of KNOBS
    knob: float

    @property
    def scaling(self) -> str:
        """The simulator's name of it."""
        return self.scaler.partition(",")[0]

    def pool(self) -> WorkerPool:
        target: dict[str, float] = {}
        if self.scaler in (*PANDO, "hpa_kv"):
            target["pressure"] = self.knob
        if self.scaler == "pando, queueWait":
            target["queueWaitSeconds"] = QUEUE_WAIT_S
        if self.scaler == "pando, latency":
            target |= {"ttftSeconds": TTFT_S, "interTokenSeconds": ITL_S, "percentile": self.knob}
        if self.scaler == "dynamo_planner":
            target |= {"ttftSeconds": self.knob * TTFT_S, "interTokenSeconds": self.knob * ITL_S}
        scaling: dict[str, Any] = {"minReplicas": 1, "maxReplicas": MOST_REPLICAS, "target": target}
        spec = NONE["spec"] | {"replicas": FIRST_REPLICAS, "scaling": scaling}
        return parse(NONE | {"spec": spec})


def contenders(load: Load) -> list[Contender]:
    """In the order of running, so that an interrupted benchmark has results of each scaler."""
    most = max(map(len, load.knobs.values()))
    return [
        Contender(scaler, knobs[turn])
        for turn in range(most)
        for scaler, knobs in load.knobs.items()
        if turn < len(knobs)
    ]
