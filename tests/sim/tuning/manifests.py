"""A manifest as JSON, and the space around it."""

from typing import Any

from pando_sim.tuning.goal import Goal
from pando_sim.tuning.knobs import scaling_knobs
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Document, Space

GOAL = Goal(ttft_s=2.0, gap_s=0.05)


def document(**scaling: Any) -> Document:
    fields = {"minReplicas": 1, "maxReplicas": 6, **scaling}
    return {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "pool"},
        "spec": {"model": "simulated", "replicas": 1, "scaling": fields},
    }


def space(**scaling: Any) -> Space:
    return Space(document(**scaling), "cache_aware", scaling_knobs(GOAL, 6))


def outcome(gpu_hours: float, missed: float, **fields: Any) -> Score:
    """Of a part of a week, so that GPU-hours are those a week."""
    known = {"late": missed, "slow": 0.0, "unanswered": 0.0, "hours": 168.0, "requests": 1000}
    return Score(gpu_hours=gpu_hours, missed=missed, **(known | fields))
