"""Notes on a manifest which traffic it was tuned on: `pando pools` shows it, and the operator
notices when the traffic has been another one for a week."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from pando.tune.plan import TunePlan
from pando_operator.resource.tuned_on import ANNOTATION, TunedOn
from pando_sim.traces import shaped

HOUR_S = 3600.0


def noted(plan: TunePlan, hit_rate: float | None) -> TunedOn:
    """
    Args:
        hit_rate: as it was recorded.
    """
    count = prompt_tokens = output_tokens = 0
    last_s = 0.0
    for request in shaped(plan.planned.trace, plan.planned.tasks[0].shape):
        count += 1
        prompt_tokens += request.prompt.num_tokens
        output_tokens += request.output_tokens
        last_s = request.at_s
    names = ", ".join(path.name for path in plan.planned.trace.paths)
    return TunedOn(
        trace=names[:253],
        date=datetime.now(UTC).date(),
        requests_per_hour=round(count / max(last_s / HOUR_S, 1e-9), 1),
        prompt_tokens=round(prompt_tokens / count, 1),
        output_tokens=round(output_tokens / count, 1),
        hit_rate=None if hit_rate is None else round(hit_rate, 3),
    )


def annotated(document: dict[str, Any], tuned: TunedOn) -> dict[str, Any]:
    """The manifest, or the merge patch of one, with the note."""
    made = deepcopy(document)
    metadata = made.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: tuned.written()}
    return made
