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
"""Under this name, fields may be added, but never removed or given another meaning."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """results.json. Times are seconds of the simulation; null means that there is no number."""

    schema: str = SCHEMA
    about: About
    runs: list[Digest]


def write_results(path: Path, about: About, digests: Sequence[Digest]) -> None:
    encoded = msgspec.json.encode(Results(about=about, runs=list(digests)), enc_hook=str)
    path.write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


def write_requests(path: Path, run: Run) -> None:
    """Writes a row per request. A field without a number is empty."""
    names = [field.name for field in dataclasses.fields(Served)]
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*names, "ttft_s", "token_gap_s"])
        for one in run.served:
            values = [getattr(one, name) for name in names]
            rows.writerow(map(_cell, [*values, one.ttft_s, one.token_gap_s]))


def write_samples(path: Path, run: Run) -> None:
    """Writes a row per sample; the replicas' computed tokens share a field, separated by blanks."""
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
