"""`prove`: whether a replay shows what the recorded period showed, within stated bounds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pando_sim.proof.measures import Measures


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest difference with which a number counts as predicted: the larger of the two."""

    share: float  # of the recorded number
    least: float  # in the number's own unit

    def allowed(self, recorded: float) -> float:
        return max(self.share * abs(recorded), self.least)


BOUNDS: Mapping[str, Bound] = {
    "replicas": Bound(share=0.10, least=0.25),
    "hit_rate": Bound(share=0.0, least=0.05),
    "refused": Bound(share=0.0, least=0.02),
    "ttft_p50": Bound(share=0.30, least=0.03),
    "ttft_p99": Bound(share=0.40, least=0.10),
    "gap_p50": Bound(share=0.25, least=0.002),
    "gap_p99": Bound(share=0.40, least=0.005),
}
"""By the name of the number in `Measures`, in the order in which they are shown. A percentile far
out has a wider bound, because a few requests make it."""

NAMES = {
    "replicas": "replicas",
    "hit_rate": "hit rate",
    "refused": "refused requests",
    "ttft_p50": "TTFT, median",
    "ttft_p99": "TTFT, p99",
    "gap_p50": "gap, median",
    "gap_p99": "gap, p99",
}
LEAST_REQUESTS = 100
"""With fewer requests, chance decides the percentiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    name: str  # a field of `Measures`
    recorded: float | None
    replayed: float | None
    allowed: float | None  # difference; None if there is nothing to compare

    @property
    def holds(self) -> bool | None:
        """None if there is nothing to compare."""
        if self.recorded is None or self.replayed is None or self.allowed is None:
            return None
        return abs(self.replayed - self.recorded) <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    recorded: Measures
    replayed: Measures
    rows: tuple[Compared, ...]
    failures: tuple[str, ...]  # sentences: what the simulator cannot predict, and what is unknown

    @property
    def holds(self) -> bool:
        return not self.failures


def prove(recorded: Measures, replayed: Measures, bounds: Mapping[str, Bound] = BOUNDS) -> Proof:
    rows = tuple(_row(name, bound, recorded, replayed) for name, bound in bounds.items())
    failures = tuple(_failures(rows, recorded, replayed))
    return Proof(recorded=recorded, replayed=replayed, rows=rows, failures=failures)


def _row(name: str, bound: Bound, recorded: Measures, replayed: Measures) -> Compared:
    before: float | None = getattr(recorded, name)
    allowed = None if before is None else bound.allowed(before)
    return Compared(name=name, recorded=before, replayed=getattr(replayed, name), allowed=allowed)


def _failures(rows: tuple[Compared, ...], recorded: Measures, replayed: Measures) -> Iterator[str]:
    if recorded.requests < LEAST_REQUESTS:
        yield (
            f"the recording has {recorded.requests} requests after its first"
            f" {recorded.skip_s:.0f} s: at least {LEAST_REQUESTS} are needed to say anything"
        )
    for row in rows:
        name = NAMES[row.name]
        if row.recorded is None:
            yield f"{name} cannot be proven: the recording does not have it"
        elif row.replayed is None:
            yield f"{name} cannot be proven: the replay does not have it"
        elif not row.holds:
            yield (
                f"{name} is not predicted: recorded {shown(row.name, row.recorded)}, replayed"
                f" {shown(row.name, row.replayed)}, allowed a difference of"
                f" {shown(row.name, row.allowed)}"
            )


def shown(name: str, value: float | None) -> str:
    """A number of `Measures` with its unit."""
    if value is None:
        return "-"
    if name in ("hit_rate", "refused"):
        return f"{value:.1%}"
    if name == "replicas":
        return f"{value:.2f}"
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"
