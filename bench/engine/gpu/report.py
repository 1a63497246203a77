"""The results of a run, as JSON and as tables."""

import msgspec

from bench.engine.gpu.ceilings import Ceilings
from bench.engine.gpu.parts import Busy, Decode, EndToEnd, FirstToken, Prefill, Sizes


class Report(msgspec.Struct, kw_only=True):
    model: str
    device: str
    versions: dict[str, str]
    path: str  # what computes attention
    sizes: Sizes
    ceilings: Ceilings
    decode: list[Decode] = []
    prefill: Prefill | None = None
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
    if report.decode:
        lines += ["", "| decode batch | tokens/s | ceiling | share |", "|---|---|---|---|"]
        lines += [
            f"| {row.batch} | {row.tokens_per_s:,.0f} | {row.ceiling:,.0f} | {row.share:.0%} |"
            for row in report.decode
        ]
    if found := report.prefill:
        lines += [
            "",
            f"Prefill of {found.prompts} x {found.prompt_tokens} tokens:"
            f" {found.tokens_per_s:,.0f} tokens/s, {found.of_product:.0%} of the measured matrix"
            f" product, {_mfu(found, ceilings)}.",
        ]
    if report.first_tokens:
        lines += ["", "| prompt | cached | first token, ms |", "|---|---|---|"]
        lines += [
            f"| {row.prompt_tokens} | {row.cached_share:.0%} ({row.cached_tokens})"
            f" | {row.milliseconds:.1f} |"
            for row in report.first_tokens
        ]
    if found_busy := report.busy:
        lines += [
            "",
            f"Device busy in decodes of {found_busy.batch} rows: {found_busy.share:.1%}"
            f" ({found_busy.steps} steps a round, under the profiler).",
        ]
    if report.end_to_end:
        name = f"transformers ({report.rival_attention})" if report.rival else "transformers"
        header = f"| batch, end to end | pando tokens/s | {name} tokens/s | ratio |"
        lines += ["", header, "|---|---|---|---|"]
        theirs = {row.batch: row for row in report.rival}
        for row in report.end_to_end:
            rival = theirs.get(row.batch)
            other = "not run | " if rival is None else f"{rival.tokens_per_s:,.0f} | "
            ratio = "" if rival is None else f"{row.tokens_per_s / rival.tokens_per_s:.2f}"
            lines.append(f"| {row.batch} | {row.tokens_per_s:,.0f} | {other}{ratio} |")
    return "\n".join(lines)


def _mfu(found: Prefill, ceilings: Ceilings) -> str:
    if found.mfu is None or ceilings.peak_flops_per_s is None:
        return "MFU unknown: the device's peak is, see --peak-tflops"
    return f"MFU {found.mfu:.0%} of a peak of {ceilings.peak_flops_per_s / 1e12:.0f} TFLOP/s"
