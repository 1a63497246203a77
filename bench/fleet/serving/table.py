"""Shows a report as a table."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from bench.fleet.serving.statistics import Distribution, Report


def show(report: Report, console: Console) -> None:
    summary = Table(show_header=False, box=None)
    for name, value in _summary(report):
        summary.add_row(name, value)
    console.print(summary)
    latencies = Table("", "mean", "p50", "p90", "p99", "max", "values", box=None)
    for name, values in (
        ("TTFT, ms", report.ttft),
        ("TPOT, ms", report.tpot),
        ("ITL, ms", report.itl),
        ("end to end, ms", report.end_to_end),
        ("generator late, ms", report.lateness),
    ):
        if values is not None:
            latencies.add_row(name, *_cells(values))
    console.print(latencies)


def _summary(report: Report) -> Iterator[tuple[str, str]]:
    yield "requests", f"{report.succeeded} of {report.requests} succeeded in {report.seconds:.2f} s"
    for kind, count in report.errors.items():
        yield "failed", f"{count} x {kind}"
    yield (
        "throughput",
        (
            f"{report.requests_per_s:.2f} requests/s, {report.prompt_tokens_per_s:.0f} prompt and"
            f" {report.output_tokens_per_s:.0f} output tokens/s"
        ),
    )
    if report.goodput_per_s is not None and report.good_share is not None:
        yield "goodput", f"{report.goodput_per_s:.2f} requests/s ({report.good_share:.1%} of all)"
    told = "not reported" if report.cached_share is None else f"{report.cached_share:.1%}"
    yield "prompt tokens", f"{report.prompt_tokens}, from cache: {told}"
    yield "output tokens", str(report.output_tokens)


def _cells(values: Distribution) -> Iterator[str]:
    for seconds in (values.mean, values.p50, values.p90, values.p99, values.max):
        yield f"{seconds * 1000:.2f}"
    yield str(values.count)
