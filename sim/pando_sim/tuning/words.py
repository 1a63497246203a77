"""What the findings say, in sentences: the same in the terminal and in the report."""

from pando_sim.report.measures import limit, percent
from pando_sim.tuning.findings import DEFAULTS, TODAY, Contribution, Findings, Shown
from pando_sim.tuning.goal import ALLOWED
from pando_sim.tuning.knobs import SCALING, Value
from pando_sim.tuning.score import Score

CALLED = {TODAY: "today's manifest", DEFAULTS: "the defaults"}
OFF = "off"


def called(point: Shown) -> str:
    return CALLED.get(point.name, point.name)


def sentences(findings: Findings) -> list[str]:
    """The result, the most important first."""
    best, today = findings.point(findings.recommended), findings.point(TODAY)
    said = [_goal(findings)]
    if findings.interrupted:
        said.append(_interrupted(best))
    if findings.about.unplayed:
        count = findings.about.unplayed
        said.append(f"Lines of the trace that cannot be played, and were left out: {count:,}.")
    if findings.about.warning:
        said.append(f"This says little: {findings.about.warning}.")
    if findings.about.tried_on < findings.about.searched_requests:
        said.append(_excerpts(findings))
    if findings.is_kept_today:
        said.append(
            "Keep today's manifest: what was found on the part that was searched does not hold on"
            " the other part, where today's manifest is no worse."
        )
    elif findings.passed_over:
        said.append(
            f"Recommended is {called(best)}: on the other part of the trace, which judges, it is"
            f" better than {findings.passed_over}, the best on the part that was searched."
        )
    elif best.name == TODAY:
        said.append("Keep today's manifest: nothing that was tried is better.")
    else:
        said.append(f"Recommended is {called(best)}: {_beside(best.searched, today.searched)}.")
    if best.judged is not None and today.judged is not None:
        beside = "" if best is today else f"; today's manifest has {_numbers(today.judged)}"
        said.append(
            f"On the other part of the trace, which judges, it has {_numbers(best.judged)}{beside}."
        )
    elif best.judged is None:
        said.append("It was not judged on the other part of the trace.")
    if best.worst is not None:
        worst = best.varied[best.worst]
        said.append(f"Its worst case is “{best.worst}”, with {percent(worst.missed)} missed.")
    said += _unmet(findings, best)
    if findings.about.no_schedules:
        said.append(f"Schedules by hour were not searched: {findings.about.no_schedules}.")
    return said


def contribution(one: Contribution) -> str:
    """What a field of the recommended point is good for."""
    best = one.with_it
    name = one.path.removeprefix(SCALING)
    change = f"{name} {shown(one.today)} → {shown(one.value)}"
    if not one.without.is_whole:
        return f"{change}: without it the run was lost ({percent(one.without.missed)} missed)"
    hours = one.without.gpu_hours / best.gpu_hours - 1
    missed = f"{percent(one.without.missed)} missed instead of {percent(best.missed)}"
    if abs(hours) < 0.0005:
        return f"{change}: without it as many GPU-hours, {missed}"
    more = "more" if hours > 0 else "fewer"
    return f"{change}: without it {abs(100 * hours):.1f} % {more} GPU-hours, {missed}"


def important(shares: dict[str, float]) -> str:
    """The fields that made the most difference among all candidates."""
    first = sorted(shares.items(), key=lambda one: -one[1])[:3]
    return ", ".join(f"{path.removeprefix(SCALING)} ({100 * share:.0f} %)" for path, share in first)


def shown(value: Value) -> str:
    return OFF if value is None else value if isinstance(value, str) else f"{value:g}"


def _goal(findings: Findings) -> str:
    about = findings.about
    ttft, gap = limit(about.ttft_p99_s), limit(about.gap_p99_s)
    times = f"a first token within {ttft} and {gap} between tokens"
    if about.budget is not None:
        return f"Asked for: the fewest misses of {times} for {about.budget:g} GPU-hours a week."
    if about.as_good_as_today:
        return (
            f"Asked for: no more misses of {times} than with today's manifest, for the fewest"
            " GPU-hours."
        )
    return f"Asked for: 99 % of the requests with {times}, for the fewest GPU-hours."


def _interrupted(best: Shown) -> str:
    said = "The search was interrupted; this is what it had found until then, and --resume goes on."
    if best.is_only_tried:
        said += (
            " No candidate was played on more requests than those of the trials, and so few often"
            " promise too much."
        )
    return said


def _excerpts(findings: Findings) -> str:
    about = findings.about
    judged, other = about.judged_requests, about.other_requests
    which = f"all {other:,}" if judged == other else f"stretches with {judged:,} of the {other:,}"
    best = judging = ""
    if not all(one.is_only_tried for one in findings.points):
        best = f", the best on stretches with {about.checked_on:,}"
    if any(one.judged is not None for one in findings.points):
        judging = f"; {which} of the other part judge"
    return (
        f"Candidates were tried on stretches of the part with {about.tried_on:,} requests{best}, of"
        f" {about.searched_requests:,} that it has{judging}."
    )


def _numbers(one: Score) -> str:
    return f"{one.gpu_hours_a_week:,.0f} GPU-hours a week and {percent(one.missed)} missed"


def _beside(one: Score, today: Score) -> str:
    less = 1 - one.gpu_hours / today.gpu_hours
    change = f"{abs(100 * less):.1f} % {'fewer' if less >= 0 else 'more'}"
    return (
        f"{_numbers(one)}; today's manifest has {_numbers(today)}: {change} GPU-hours on the part"
        " of the trace that was searched"
    )


def _unmet(findings: Findings, best: Shown) -> list[str]:
    about, found = findings.about, best.judged or best.searched
    if about.budget is not None:
        if found.gpu_hours_a_week > about.budget:
            return [f"No candidate costs as little as {about.budget:g} GPU-hours a week."]
        return []
    if about.as_good_as_today:
        if found.allowed is not None and found.missed > found.allowed:
            return [
                f"On the other part it misses more than today's manifest: {percent(found.missed)}"
                f" instead of {percent(found.allowed)}."
            ]
        return []
    if max(best.searched.late, best.searched.slow) <= ALLOWED:
        if max(found.late, found.slow) > ALLOWED:
            return [
                f"On the other part it misses what was asked for: {percent(found.late)} have a late"
                f" first token, {percent(found.slow)} slow tokens."
            ]
        return []
    return [
        "No candidate reaches what was asked for; the recommended one comes closest:"
        f" {percent(best.searched.late)} have a late first token, {percent(best.searched.slow)}"
        " slow tokens, and 1 % may."
    ]
