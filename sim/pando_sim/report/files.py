"""Files for other programs: results as JSON, requests and samples as CSV."""

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pando_sim.records import Run, Sample, Served
from pando_sim.report.about import About
from pando_sim.report.digest import Digest

SCHEMA = "pando.dev/simulation/v1"
"""Fields may be added under this name; none changes its meaning or goes."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """results.json. Times are seconds of the simulation, null stands where there is no number."""

    schema: str = SCHEMA
    about: About
    runs: list[Digest]


def write_results(path: Path, about: About, digests: Sequence[Digest]) -> None:
    encoded = msgspec.json.encode(Results(about=about, runs=list(digests)), enc_hook=str)
    path.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


def write_requests(path: Path, run: Run) -> None:
    """A row a request. An empty field stands where there is no number."""
    names = [field.name for field in dataclasses.fields(Served)]
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*names, "ttft_s", "token_gap_s"])
        for one in run.served:
            values = [getattr(one, name) for name in names]
            rows.writerow(map(_cell, [*values, one.ttft_s, one.token_gap_s]))


def write_samples(path: Path, run: Run) -> None:
    """A row a sample, with the replicas' computed tokens parted by blanks in one field."""
    names = [field.name for field in dataclasses.fields(Sample)]
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        for sample in run.samples:
            rows.writerow(_cell(getattr(sample, name)) for name in names)


def _cell(value: Any) -> Any:
    match value:
        case float():
            return "" if math.isnan(value) else f"{value:.6f}".rstrip("0").rstrip(".")
        case tuple():
            return " ".join(map(str, value))
        case _:
            return value
