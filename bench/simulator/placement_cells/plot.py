"""Plots goodput against hit rate as SVG: a dot per cell and policy, a panel per trace."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from bench.simulator.placement_cells.cells import Cell
from bench.simulator.placement_cells.results import Results

_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "pando", "font.size": 9}
_COLOURS = {
    "cache_aware": "#cf222e",
    "smg": "#0969da",
    "llm_d": "#1a7f37",
    "dynamo": "#bc4c00",
    "session": "#8250df",
    "least_loaded": "#6e7781",
    "round_robin": "#afb8c1",
}
_OWN = "cache_aware"


def draw(cells: Sequence[Cell], results: Results, path: Path) -> None:
    """Leaves out policies that were simulated in few cells only."""
    traces = list(dict.fromkeys(cell.trace for cell in cells))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.1 * len(traces), 3.3), layout="constrained")
        panels = figure.subplots(1, len(traces), squeeze=False)[0]
        for axes, trace in zip(panels, traces, strict=True):
            found = [results.of(cell.name) for cell in cells if cell.trace is trace]
            for policy, colour in _COLOURS.items():
                dots = [each[policy] for each in found if policy in each]
                axes.scatter(
                    [100 * one.hit_rate for one in dots],
                    [100 * one.goodput for one in dots],
                    s=36 if policy == _OWN else 18,
                    color=colour,
                    zorder=3 if policy == _OWN else 2,
                    label=policy,
                )
            axes.set_title(str(trace))
            axes.set_xlabel("hit rate, %")
            axes.grid(color="#d8dee4", linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("goodput, %")
        handles, labels = panels[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue())
