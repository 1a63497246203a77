"""The first sentences of the report: the results."""

from collections.abc import Sequence

from pando_sim.report import measures
from pando_sim.report.about import About
from pando_sim.report.digest import Digest, names
from pando_sim.report.measures import Measure, limit, percent, seconds, whole

_SAID = (measures.GOODPUT, measures.TTFT_P99, measures.HIT_RATE)
_IN_WORDS = {
    "goodput": "Most requests in time",
    "TTFT p99": "Shortest p99 time to first token",
    "hit rate": "Highest hit rate",
    "GPU-hours": "Fewest GPU-hours",
}


def verdict(about: About, digests: Sequence[Digest]) -> list[str]:
    if len(digests) == 1:
        return _alone(about, digests[0])
    said = [_best(measure, digests) for measure in _SAID]
    if len({one.scaling for one in digests}) > 1:
        said.append(_best(measures.GPU_HOURS, digests))
    return [sentence for sentence in said if sentence]


def _alone(about: About, one: Digest) -> list[str]:
    run = one.statistics
    if run.goodput is None or run.ttft is None:
        return ["No request was answered."]
    said = [
        f"{percent(run.goodput)} of {whole(run.requests)} requests were in time: a first token"
        f" within {limit(about.slow_ttft_s)}, and {limit(about.slow_gap_s)} between tokens.",
        f"Half had their first token within {seconds(run.ttft.p50)}, 99 % within"
        f" {seconds(run.ttft.p99)}.",
    ]
    if run.hit_rate is not None:
        said.append(f"{percent(run.hit_rate)} of the prompt tokens came from a cache.")
    return said


def _best(measure: Measure, digests: Sequence[Digest]) -> str:
    """The best run and the second best; empty if all are alike."""
    runs, called = [one.statistics for one in digests], names(list(digests))
    winners = measure.best(runs)
    if not winners:
        return ""
    best = " and ".join(called[number] for number in sorted(winners))
    value = measure.value(runs[min(winners)])
    others = [
        (other, called[number])
        for number, run in enumerate(runs)
        if number not in winners and (other := measure.value(run)) is not None
    ]
    if value is None or not others:
        return ""
    pick = max if measure.better is measures.Better.HIGHER else min
    second, name = pick(others)
    return (
        f"{_IN_WORDS[measure.title]}: {best} with {measure.words(value)};"
        f" next is {name} with {measure.words(second)}."
    )
