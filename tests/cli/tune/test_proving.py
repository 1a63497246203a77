"""A search begins only where the simulator predicts what was recorded, and ends with a note."""

import json
from pathlib import Path

import pytest

from pando.logs import LogSettings
from pando.tune.noted import annotated, with_hits
from pando.tune.plan import TunePlanError, make_tune_plan
from pando.tune.proving import prove_first
from pando.tune.settings import TuneSettings
from pando.up.signals import end_signals
from pando_operator.resource.parse import parse
from pando_operator.resource.tuned_on import ANNOTATION, tuned_on
from tests.cli.sim.test_prove import COST, SLOWER, as_served, draft

POOL = """apiVersion: pando.dev/v1alpha1
kind: WorkerPool
metadata: {name: chat}
spec: {model: m, replicas: 2, scaling: {mode: Manual, minReplicas: 1, maxReplicas: 3}}
"""


@pytest.mark.long
def test_a_recording_that_is_not_predicted_is_searched_only_anyway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, pool = tmp_path / "trace.jsonl", tmp_path / "pool.yaml"
    as_served(trace, draft())
    pool.write_text(POOL)

    def search(cost_model: str, *, anyway: bool = False) -> str:
        settings = TuneSettings(
            trace=(str(trace),), pool=pool, cost_model=cost_model, closed_loop=False, anyway=True
        )
        plan = make_tune_plan(settings)  # too short, so only anyway
        with end_signals() as signals:
            prove_first(
                settings.model_copy(update={"anyway": anyway}), LogSettings(), plan, signals
            )
        return capsys.readouterr().err

    assert search(COST).count(" predicted\n") == 7
    with pytest.raises(TunePlanError, match="does not predict this recording"):
        search(SLOWER)
    assert "TTFT, median is not predicted" in search(SLOWER, anyway=True)


def test_what_is_written_names_the_traffic_that_it_was_tuned_on(tmp_path: Path) -> None:
    pool, trace = tmp_path / "pool.yaml", tmp_path / "week.jsonl"
    pool.write_text(POOL)
    rows = [{"timestamp": 9000 * n, "input_length": 1500, "output_length": 30} for n in range(201)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    settings = TuneSettings(trace=(str(trace),), pool=pool, cost_model=COST, anyway=True)
    plan = make_tune_plan(settings)
    tuned = with_hits(plan.noted, 0.25)
    assert (tuned.trace, tuned.prompt_tokens, tuned.output_tokens) == ("week.jsonl", 1500, 30)
    assert (tuned.requests_per_hour, tuned.hit_rate) == (402, 0.25)
    written = annotated(plan.document, tuned)
    assert tuned_on(parse(written).metadata.annotations) == tuned
    assert "annotations" not in plan.document["metadata"]
    assert annotated({"spec": {}}, tuned)["metadata"] == {
        "annotations": {ANNOTATION: tuned.written()}
    }
