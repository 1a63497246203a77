"""Plots calls an hour, hit rate and later calls' TTFT by the number of sessions, a line a rule."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from bench.simulator.agent_sessions.plays import Play

_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "pando", "font.size": 9}
_COLOURS = ("#6e7781", "#0969da", "#1a7f37", "#cf222e", "#bc4c00", "#8250df")


def draw(plays: Sequence[Play], path: Path) -> None:
    rules = list(dict.fromkeys(one.cell.rule for one in plays))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.4, 3.2), layout="constrained")
        calls, hits, tail = figure.subplots(1, 3)
        for rule, colour in zip(rules, _COLOURS, strict=False):
            own = sorted((p for p in plays if p.cell.rule == rule), key=lambda p: p.cell.sessions)
            at_once = [one.cell.sessions for one in own]
            line: dict[str, Any] = {"color": colour, "label": rule, "marker": "o", "markersize": 3}
            calls.plot(at_once, [one.calls_per_hour for one in own], **line)
            hits.plot(at_once, [100 * one.hit_rate for one in own], **line)
            tail.plot(at_once, [one.later_p99_s for one in own], **line)
        for axes, title in (
            (calls, "calls an hour"),
            (hits, "hit rate, %"),
            (tail, "TTFT p99 of later calls, s"),
        ):
            axes.set_title(title)
            axes.set_xlabel("sessions at once")
            axes.set_ylim(bottom=0)
            axes.grid(color="#d8dee4", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        tail.set_yscale("log")
        handles, labels = calls.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue())
