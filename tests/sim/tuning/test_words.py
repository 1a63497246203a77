"""What a search says of itself."""

import msgspec

from pando_sim.tuning.findings import DEFAULTS, TODAY, Findings, Shown, TuneAbout
from pando_sim.tuning.score import Score
from pando_sim.tuning.words import sentences
from tests.sim.tuning.manifests import outcome

ABOUT = TuneAbout(
    command="pando tune",
    pando_version="0",
    trace="trace.jsonl",
    parts="by days",
    searched_requests=20_000,
    tried_on=1000,
    checked_on=3000,
    judged_requests=2900,
    other_requests=9800,
    pool="pool.yaml",
    name="chat",
    cost_model="a",
    seed=0,
    ttft_p99_s=2.0,
    gap_p99_s=0.05,
    budget=None,
)


def shown(name: str, hours: float, missed: float, judged: Score | None = None) -> Shown:
    score = outcome(hours, missed)
    return Shown(name=name, values={}, is_on_front=True, searched=score, judged=judged)


def said(*points: Shown, interrupted: bool = False, about: TuneAbout = ABOUT) -> str:
    every = (shown(TODAY, 10, 0.05), shown(DEFAULTS, 10, 0.05), *points)
    if all(one.is_only_tried for one in points):
        every = tuple(msgspec.structs.replace(one, is_only_tried=True) for one in every)
    return " ".join(
        sentences(
            Findings(
                about=about,
                trials=3,
                lost=0,
                refused=0,
                interrupted=interrupted,
                points=list(every),
                recommended=points[-1].name,
            )
        )
    )


def test_a_search_that_was_ended_early_says_what_its_advice_rests_on() -> None:
    tried = msgspec.structs.replace(shown("candidate 2", 8, 0.009), is_only_tried=True)
    early = said(tried, interrupted=True)
    assert "--resume goes on" in early
    assert "No candidate was played on more requests than those of the trials" in early
    assert "with 1,000 requests, of 20,000 that it has." in early
    assert "judge." not in early

    late = said(shown("candidate 2", 8, 0.009), interrupted=True)
    assert "No candidate was played" not in late
    assert "with 1,000 requests, the best on stretches with 3,000, of 20,000 that it has." in late
    assert "It was not judged on the other part" in late


def test_a_whole_search_says_how_many_requests_judge() -> None:
    whole = said(shown("candidate 2", 8, 0.009, judged=outcome(8, 0.009)))
    assert "of 20,000 that it has; stretches with 2,900 of the 9,800 of the other part jud" in whole
    assert "interrupted" not in whole


def test_as_good_as_today_says_where_it_is_not() -> None:
    about = msgspec.structs.replace(ABOUT, as_good_as_today=True)
    kept = said(shown("a", 8, 0.04, judged=outcome(8, 0.05, allowed=0.05)), about=about)
    assert kept.startswith("Asked for: no more misses of a first token within 2 s")
    assert "On the other part it misses" not in kept
    worse = said(shown("a", 8, 0.04, judged=outcome(8, 0.06, allowed=0.05)), about=about)
    assert "On the other part it misses more than today's manifest: 6.0 % instead of 5.0 %" in worse
