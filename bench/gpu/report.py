"""The results of a run, as JSON and as tables."""

from collections.abc import Sequence

import msgspec

from bench.gpu.ceilings import Ceilings
from bench.gpu.parts import Busy, Decode, EndToEnd, FirstToken, Prefill, Shared, Sizes


class Report(msgspec.Struct, kw_only=True):
    model: str
    device: str
    versions: dict[str, str]
    path: str  # what computes attention
    sizes: Sizes
    ceilings: Ceilings
    decode: list[Decode] = []
    prefill: list[Prefill] = []
    shared: Shared | None = None
    first_tokens: list[FirstToken] = []
    busy: Busy | None = None
    end_to_end: list[EndToEnd] = []
    rival: list[EndToEnd] = []
    rival_attention: str = ""


def markdown(report: Report) -> str:
    """Tables of the parts that ran."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    ceilings = report.ceilings
    lines = [
        f"### {report.model} on {report.device}",
        "",
        f"{versions}; attention by {report.path}. Measured ceilings: "
        f"{ceilings.bytes_per_s / 1e12:.2f} TB/s of memory, "
        f"{ceilings.flops_per_s / 1e12:.0f} TFLOP/s of a matrix product. All else: medians of"
        f" {report.sizes.rounds} rounds after one that warms up.",
    ]
    lines += _table(
        ("decode batch", "tokens/s", "ceiling", "share"),
        [
            (f"{row.batch}", f"{row.tokens_per_s:,.0f}", f"{row.ceiling:,.0f}", f"{row.share:.0%}")
            for row in report.decode
        ],
    )
    lines += _table(
        ("prefill", "tokens/s", "of the measured matrix product", "MFU"),
        [
            (
                f"{row.prompts} x {row.prompt_tokens}",
                f"{row.tokens_per_s:,.0f}",
                f"{row.of_product:.0%}",
                _mfu(row, ceilings),
            )
            for row in report.prefill
        ],
    )
    if alike := report.shared:
        lines += [
            "",
            f"Decodes of {alike.rows} rows behind {alike.prompt_tokens} tokens:"
            f" {alike.shared_tokens_per_s:,.0f} tokens/s if they share these,"
            f" {alike.distinct_tokens_per_s:,.0f} if not: {alike.ratio:.2f} times.",
        ]
    lines += _table(
        ("prompt", "cached", "first token, ms"),
        [
            (
                f"{row.prompt_tokens}",
                f"{row.cached_share:.0%} ({row.cached_tokens})",
                f"{row.milliseconds:.1f}",
            )
            for row in report.first_tokens
        ],
    )
    if found_busy := report.busy:
        lines += [
            "",
            f"Device busy in decodes of {found_busy.batch} rows: {found_busy.share:.1%}"
            f" ({found_busy.steps} steps a round, under the profiler); idle"
            f" {found_busy.gap_us:.0f} µs a step.",
        ]
    name = f"transformers ({report.rival_attention})" if report.rival else "transformers"
    theirs = {row.batch: row for row in report.rival}
    lines += _table(
        ("batch, end to end", "pando tokens/s", f"{name} tokens/s", "ratio"),
        [_beside(row, theirs.get(row.batch)) for row in report.end_to_end],
    )
    return "\n".join(lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of Markdown; none without rows."""
    if not rows:
        return []
    body = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return ["", body[0], "|" + "---|" * len(heads), *body[1:]]


def _beside(own: EndToEnd, rival: EndToEnd | None) -> Sequence[str]:
    if rival is None:
        return f"{own.batch}", f"{own.tokens_per_s:,.0f}", "not run", ""
    ratio = own.tokens_per_s / rival.tokens_per_s
    return f"{own.batch}", f"{own.tokens_per_s:,.0f}", f"{rival.tokens_per_s:,.0f}", f"{ratio:.2f}"


def _mfu(found: Prefill, ceilings: Ceilings) -> str:
    if found.mfu is None or ceilings.peak_flops_per_s is None:
        return "unknown: the device's peak is, see --peak-tflops"
    return f"{found.mfu:.0%} of a peak of {ceilings.peak_flops_per_s / 1e12:.0f} TFLOP/s"
