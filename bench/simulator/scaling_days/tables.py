"""A load's table, in Markdown."""

from collections.abc import Sequence

from bench.simulator.scaling_days.front import against, front, rivals
from bench.simulator.scaling_days.runs import Result

HEAD = (
    "| scaler | knob | replica-hours | out of time | late | refused | TTFT p50 / p99, s | most"
    " | changes | against the rivals |\n|---|---|---|---|---|---|---|---|---|---|"
)


def table(results: Sequence[Result]) -> str:
    """The table of one load and start time. Results on the front of all are bold."""
    best = {(one.replica_hours, one.violations) for one in front(results)}
    return "\n".join(
        [
            HEAD,
            *(_row(one, results, (one.replica_hours, one.violations) in best) for one in results),
        ]
    )


def _row(one: Result, results: Sequence[Result], is_best: bool) -> str:
    others = [other for other in rivals(results) if other.scaler != one.scaler]
    share = against(one, others)
    said = "none has so few" if share is None else f"{100 * share:+.0f} %"
    mark = "**" if is_best else ""
    cells = (
        f"{mark}{one.scaler}{mark}",
        f"{one.knob:g}",
        f"{one.replica_hours:.1f}",
        f"{100 * one.violations:.2f} %",
        f"{100 * one.late:.2f} %",
        str(one.refused),
        f"{one.ttft_p50_s:.2f} / {one.ttft_p99_s:.1f}",
        str(one.most_replicas),
        str(one.changes),
        said,
    )
    return "| " + " | ".join(cells) + " |"
