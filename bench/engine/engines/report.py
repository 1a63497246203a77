"""Medians, ratios and the table of a comparison between engines."""

import statistics
from collections.abc import Sequence

import msgspec

from bench.engine.engines.contestant import Outcome


class Timed(msgspec.Struct, frozen=True):
    """One engine on one workload, over all repetitions."""

    seconds: list[float]
    tokens_per_s: float  # output tokens, with the prefill's time; from the median seconds
    ratio: float  # to the baseline: median of the ratios of each repetition
    cpu_ratio: float  # the same for CPU time
    equal: float  # share of sequences with the baseline's tokens


class Race(msgspec.Struct, frozen=True):
    model: str
    workload: str
    requests: int
    prompt_tokens: int
    new_tokens: int
    engines: dict[str, Timed]


def timed(
    mine: Sequence[Outcome], baseline: Sequence[Outcome], output_tokens: int, equal: float
) -> Timed:
    # Noise affects neighbours alike, so ratios are taken within a repetition.
    pairs = list(zip(baseline, mine, strict=True))
    seconds = [outcome.seconds for outcome in mine]
    return Timed(
        seconds=seconds,
        tokens_per_s=output_tokens / statistics.median(seconds),
        ratio=statistics.median(a.seconds / b.seconds for a, b in pairs),
        cpu_ratio=statistics.median(a.cpu_s / b.cpu_s for a, b in pairs),
        equal=equal,
    )


def markdown(races: Sequence[Race], baseline: str) -> str:
    """A table with one engine per row."""
    lines = [
        f"| model | workload | engine | tokens/s | x {baseline} | by CPU time"
        " | fastest to slowest, s | same tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for race in races:
        for name, result in race.engines.items():
            spread = f"{min(result.seconds):.2f} to {max(result.seconds):.2f}"
            lines.append(
                f"| {race.model} | {race.workload} | {name} | {result.tokens_per_s:,.0f}"
                f" | {result.ratio:.2f} | {result.cpu_ratio:.2f} | {spread} | {result.equal:.0%} |"
            )
    return "\n".join(lines)
