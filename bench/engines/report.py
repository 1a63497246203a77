"""Medians, ratios and the table of a race between engines."""

import statistics
from collections.abc import Sequence

import msgspec


class Timed(msgspec.Struct, frozen=True):
    """One engine on one workload, over all repetitions."""

    seconds: list[float]
    tokens_per_s: float  # output tokens, prefill's time included; at the median of the seconds
    ratio: float  # to the baseline: median of the ratios within each repetition
    equal: float  # share of sequences with the baseline's tokens


class Race(msgspec.Struct, frozen=True):
    model: str
    workload: str
    requests: int
    prompt_tokens: int
    new_tokens: int
    engines: dict[str, Timed]


def timed(
    seconds: Sequence[float], baseline: Sequence[float], output_tokens: int, equal: float
) -> Timed:
    return Timed(
        seconds=list(seconds),
        tokens_per_s=output_tokens / statistics.median(seconds),
        # Noise hits neighbours alike, so each repetition is compared with itself.
        ratio=statistics.median(b / s for b, s in zip(baseline, seconds, strict=True)),
        equal=equal,
    )


def markdown(races: Sequence[Race], baseline: str) -> str:
    """A table with an engine a row."""
    lines = [
        f"| model | workload | engine | tokens/s | x {baseline} | fastest to slowest, s"
        " | same tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for race in races:
        for name, result in race.engines.items():
            spread = f"{min(result.seconds):.2f} to {max(result.seconds):.2f}"
            lines.append(
                f"| {race.model} | {race.workload} | {name} | {result.tokens_per_s:,.0f}"
                f" | {result.ratio:.2f} | {spread} | {result.equal:.0%} |"
            )
    return "\n".join(lines)
