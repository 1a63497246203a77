"""The results as Markdown: each cell's best values, and Pando's distance from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.simulator.placement_cells.cells import Cell
from bench.simulator.placement_cells.results import Measures, Results, mean_of

OWN = "cache_aware"
NEAR = 0.02  # of the best one, for goodput and TTFT
HIT_SHARE = 0.97  # of the best hit rate


@dataclass(frozen=True, slots=True)
class Goal:
    """A measure to compare, and which distance from the best is close enough."""

    title: str
    value: Callable[[Measures], float]
    words: Callable[[float], str]
    sign: int  # 1 if more is better
    least: float  # as a share of the best

    def best(self, results: Mapping[str, Measures]) -> tuple[str, float]:
        """The best policy, and its value."""
        policy = max(results, key=lambda name: self.sign * self.value(results[name]))
        return policy, self.value(results[policy])

    def is_met(self, own: float, best: float) -> bool:
        return own >= self.least * best if self.sign > 0 else own <= best / self.least


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


GOALS = (
    Goal("goodput", lambda one: one.goodput, percent, 1, 1 - NEAR),
    Goal("TTFT p99", lambda one: one.ttft_p99_s, seconds, -1, 1 - NEAR),
    Goal("hit rate", lambda one: one.hit_rate, percent, 1, HIT_SHARE),
)


def tables(cells: Sequence[Cell], results: Results) -> str:
    """Pando's value against the best other one; `lost` is not a goal."""
    found = {cell: _ordered(cell, results.of(cell.name)) for cell in cells}
    lines = [*_summary(found), "", *_cells(found), "", *_policies(found)]
    return "\n".join(lines) + "\n"


def _ordered(cell: Cell, plays: Mapping[str, Measures]) -> Mapping[str, Measures]:
    """In the order of the cell's policies, because plays end in any order."""
    return {name: plays[name] for name in cell.policies if name in plays}


def _summary(found: Mapping[Cell, Mapping[str, Measures]]) -> Iterator[str]:
    yield "| goal | best | within it | not met | cells |"
    yield "|---|---|---|---|---|"
    for goal in GOALS:
        best = met = 0
        for results in found.values():
            own, others = _sides(goal, results)
            best += goal.sign * own >= goal.sign * others[1]
            met += goal.is_met(own, others[1])
        count = len(found)
        yield f"| {goal.title} | {best} | {met - best} | {count - met} | {count} |"


def _sides(goal: Goal, results: Mapping[str, Measures]) -> tuple[float, tuple[str, float]]:
    others = {name: one for name, one in results.items() if name != OWN}
    return goal.value(results[OWN]), goal.best(others)


def _cells(found: Mapping[Cell, Mapping[str, Measures]]) -> Iterator[str]:
    titles = [f"{goal.title} | best other" for goal in GOALS]
    yield f"| cell | {' | '.join(titles)} | load spread |"
    yield "|---" * (2 + 2 * len(GOALS)) + "|"
    for cell, results in found.items():
        words = [cell.name]
        for goal in GOALS:
            own, (policy, best) = _sides(goal, results)
            mark = "" if goal.is_met(own, best) else " **lost**"
            words += [goal.words(own) + mark, f"{goal.words(best)} {policy}"]
        yield f"| {' | '.join(words)} | {results[OWN].load_spread:.2f} |"


def _policies(found: Mapping[Cell, Mapping[str, Measures]]) -> Iterator[str]:
    """The means of each policy over the cells in which it was simulated."""
    yield "| placement | cells | goodput | hit rate | TTFT p50 | TTFT p99 | gap p99 | load spread |"
    yield "|---" * 8 + "|"
    names = dict.fromkeys(name for results in found.values() for name in results)
    for name in names:
        every = [results[name] for results in found.values() if name in results]
        mean = mean_of(every)
        words = (
            percent(mean.goodput),
            percent(mean.hit_rate),
            seconds(mean.ttft_p50_s),
            seconds(mean.ttft_p99_s),
            f"{1000 * mean.gap_p99_s:.0f} ms",
            f"{mean.load_spread:.2f}",
        )
        yield f"| {name} | {len(every)} | {' | '.join(words)} |"
