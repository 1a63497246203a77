"""A load's table, in Markdown as the page has it."""

from collections.abc import Sequence

from bench.scaling_days.front import against, front, rivals
from bench.scaling_days.runs import Result

HEAD = (
    "| scaler | knob | replica-hours | outside | late | refused | TTFT p50 / p99, s | most"
    " | changes | against the rivals |\n|---|---|---|---|---|---|---|---|---|---|"
)


def table(results: Sequence[Result]) -> str:
    """Of one load and start time. In bold what is on the front of all."""
    scaled = [one for one in results if one.scaler != "fixed"]
    best = {one.key for one in front(scaled)}
    return "\n".join([HEAD, *(_row(one, results, one.key in best) for one in results)])


def _row(one: Result, results: Sequence[Result], is_best: bool) -> str:
    others = [other for other in rivals(results) if other.scaler != one.scaler]
    share = against(one, others)
    if one.scaler == "fixed":
        said = ""
    else:
        said = "fewer than any has" if share is None else f"{100 * share:+.0f} %"
    mark = "**" if is_best else ""
    cells = (
        f"{mark}{one.scaler}{mark}",
        f"{one.knob:g}",
        f"{one.replica_hours:.1f}",
        f"{one.violations:.2%}",
        f"{one.late:.2%}",
        str(one.refused),
        f"{one.ttft_p50_s:.2f} / {one.ttft_p99_s:.1f}",
        str(one.most_replicas),
        str(one.changes),
        said,
    )
    return "| " + " | ".join(cells) + " |"
