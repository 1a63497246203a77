"""Notes on a manifest which traffic it was tuned on: `pando pools` shows it, and the operator
notices when the traffic has been another one for a week."""

from collections.abc import Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pando_operator.resource.tuned_on import ANNOTATION, TunedOn
from pando_sim.request import Request

HOUR_S = 3600.0


def noted(paths: Sequence[Path], requests: Sequence[Request]) -> TunedOn:
    """
    Args:
        paths: of the trace
        requests: all of its, at least one, in order
    """
    hours = max(requests[-1].at_s / HOUR_S, 1e-9)
    return TunedOn(
        trace=", ".join(path.name for path in paths)[:253],
        date=datetime.now(UTC).date(),
        requests_per_hour=round(len(requests) / hours, 1),
        prompt_tokens=_mean([one.prompt.num_tokens for one in requests]),
        output_tokens=_mean([one.output_tokens for one in requests]),
    )


def with_hits(tuned: TunedOn, hit_rate: float | None) -> TunedOn:
    """With the hit rate as it was recorded, if it was."""
    rounded = None if hit_rate is None else round(hit_rate, 3)
    return tuned.model_copy(update={"hit_rate": rounded})


def _mean(tokens: Sequence[int]) -> float:
    return round(sum(tokens) / len(tokens), 1)


def annotated(document: dict[str, Any], tuned: TunedOn) -> dict[str, Any]:
    """The manifest, or the merge patch of one, with the note."""
    made = deepcopy(document)
    metadata = made.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: tuned.written()}
    return made
