"""Files for other programs: JSON and CSV."""

import csv
import json
from pathlib import Path

import msgspec
import pytest

from pando_sim.report import write_requests, write_results, write_samples
from pando_sim.report.files import SCHEMA, Results
from tests.sim.report.made_runs import ABOUT, made_digest, made_run


def test_results_are_json_that_every_parser_reads(tmp_path: Path) -> None:
    runs = [made_digest("a", slowness=3.0, requests=300), made_digest("b", requests=300)]
    write_results(tmp_path / "results.json", ABOUT, runs)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    results = json.loads(text, parse_constant=refuse)
    assert results["schema"] == SCHEMA
    assert results["about"]["command"] == ABOUT.command
    assert [run["policy"] for run in results["runs"]] == ["a", "b"]
    assert 0 < results["runs"][0]["statistics"]["ttft"]["p99"] < 100


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    runs = [made_digest("a", requests=300, scaling="pando", faults=True)]
    write_results(tmp_path / "results.json", ABOUT, runs)
    written = (tmp_path / "results.json").read_bytes()
    assert msgspec.json.decode(written, type=Results).runs == runs


def test_equal_runs_are_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_results(tmp_path / name, ABOUT, [made_digest("p", requests=300)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_csv_has_a_row_a_request_with_what_was_computed_of_it(tmp_path: Path) -> None:
    run = made_run("p", requests=400, slowness=3.0)
    write_requests(tmp_path / "requests.csv", run)
    with (tmp_path / "requests.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400
    for row, one in zip(rows, run.served, strict=True):
        assert row["outcome"] == one.outcome
        if row["outcome"] == "refused":
            assert row["first_token_s"] == row["ttft_s"] == ""
        else:
            assert float(row["ttft_s"]) == pytest.approx(one.ttft_s, abs=1e-6)


def test_csv_has_a_row_a_sample(tmp_path: Path) -> None:
    run = made_run("p", requests=200)
    write_samples(tmp_path / "samples.csv", run)
    with (tmp_path / "samples.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["at_s"]) for row in rows] == [one.at_s for one in run.samples]
