"""Fills the template of the report."""

from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from pando_sim.report.measures import percent, seconds
from pando_sim.report.page.page import SCRIPT, script_hash
from pando_sim.tuning.findings import DEFAULTS, TODAY, Findings, Shown
from pando_sim.tuning.page import plots
from pando_sim.tuning.words import called, contribution, sentences, shown


def write_page(path: Path, findings: Findings, manifest: str) -> None:
    """`manifest`: the recommended one, as YAML."""
    path.write_text(render(findings, manifest), encoding="utf-8")


def render(findings: Findings, manifest: str) -> str:
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("pando_sim.tuning", "page"),
                PackageLoader("pando_sim.report", "page"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "seconds": seconds,
        "called": called,
        "value": shown,
    }
    drawn = [plots.searched(findings)]
    if any(one.judged is not None for one in findings.points):
        drawn.append(plots.judged(findings))
    if findings.importances:
        drawn.append(plots.importance(findings))
    script = SCRIPT.read_text(encoding="utf-8")
    return environment.get_template("tuning.html.j2").render(
        about=findings.about,
        findings=findings,
        sentences=sentences(findings),
        rows=_rows(findings),
        has_worst=any(one.worst for one in findings.points),
        contributions=[contribution(one) for one in findings.contributions],
        plots=drawn,
        manifest=manifest,
        script=script,
        script_hash=script_hash(script),
    )


def _rows(findings: Findings) -> list[Shown]:
    """Today's, the defaults, the recommended, then the front."""
    first = [TODAY, DEFAULTS, findings.recommended]
    names = dict.fromkeys([*first, *(one.name for one in findings.points if one.is_on_front)])
    known = {one.name for one in findings.points}
    return [findings.point(name) for name in names if name in known]
