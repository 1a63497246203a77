"""`pando tune` as a command: its errors, its files, and that it can be ended and go on."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from pando.main import main
from pando_operator.resource.parse import parse
from tests.waiting import PATIENCE_S, until

COST = "h100-llama-3.1-8b-fp8"
Capture = pytest.CaptureFixture[str]


def pool(folder: Path, **scaling: Any) -> str:
    path = folder / "pool.yaml"
    document = {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "chat"},
        "spec": {
            "model": "simulated",
            "replicas": 1,
            "engine": {"maxTotalTokens": 40_000, "radixCache": False},
            "scaling": {"minReplicas": 1, "maxReplicas": 3, **scaling},
        },
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def mornings(folder: Path, days: int, calm: int = 150, burst: int = 400) -> str:
    """Days from a midnight on; each has its burst at 9:00, within a minute or two."""
    draw, path = random.Random(0), folder / "mornings.jsonl"
    midnights = [1_795_392_000.0 + 86_400 * day for day in range(days)]  # 2026-11-23
    times = [begin + draw.uniform(0, 86_400) for begin in midnights for _ in range(calm)]
    for begin in midnights:
        first = begin + 9 * 3600 + draw.uniform(0, 60)
        times += [first + 0.25 * place for place in range(burst)]
    rows = [
        {"timestamp": round(1000 * at_s), "input_length": 4000, "output_length": 30}
        for at_s in sorted(times)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def trace(folder: Path, requests: int = 150, seconds: float = 90.0) -> str:
    """Requests that share nothing, with a burst in the middle."""
    draw, path = random.Random(0), folder / "trace.jsonl"
    times = [draw.uniform(0, seconds) for _ in range(requests // 2)]
    times += [draw.gauss(seconds / 2, seconds / 20) for _ in range(requests // 2)]
    rows = [
        {"timestamp": round(1000 * max(0.0, at_s)), "input_length": 1500, "output_length": 30}
        for at_s in sorted(times)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def refused(capsys: Capture, *arguments: str) -> str:
    """The one line with which it ends, with exit code 2."""
    with pytest.raises(SystemExit) as end:
        main(["tune", *arguments])
    said = capsys.readouterr()
    assert end.value.code == 2, said.err
    assert len(said.err.splitlines()) == 1, said.err
    assert said.err.startswith("pando tune: ")
    return said.err


def test_a_trace_without_requests_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert "contains no requests" in refused(capsys, str(empty), "--pool", pool(tmp_path))


def test_a_trace_of_another_model_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    chat = {"timestamp": 1, "model": "a", "messages": [{"role": "user", "content": "hello"}]}
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(chat))
    said = refused(capsys, str(path), "--pool", pool(tmp_path), "--trace-model", "b")
    assert "has no request for --trace-model 'b'" in said


def test_a_manifest_without_a_maximum_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    manual = pool(tmp_path, mode="Manual", maxReplicas=None)
    text = Path(manual).read_text().replace("    maxReplicas: null\n", "")
    Path(manual).write_text(text)
    said = refused(capsys, trace(tmp_path), "--pool", manual, "--cost-model", COST)
    assert "spec.scaling.maxReplicas is required" in said


def test_a_trace_that_is_too_short_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    said = refused(capsys, trace(tmp_path), "--pool", pool(tmp_path), "--cost-model", COST)
    assert "requests: the 99th percentile is decided by" in said
    assert "--anyway" in said


def test_sessions_without_times_are_one_line(tmp_path: Path, capsys: Capture) -> None:
    call = {"type": "n", "in": 64, "out": 7, "think_time": 1.0, "ids": [[1, 1]]}
    path = tmp_path / "sessions.jsonl"
    path.write_text(
        json.dumps({"id": "a", "block_size": 64, "tool_tokens": 0, "requests": [call, call]})
    )
    said = refused(capsys, str(path), "--pool", pool(tmp_path), "--cost-model", COST)
    assert "has agents' sessions, which have no times of their own" in said


def test_no_pool_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    assert "pool is required" in refused(capsys, trace(tmp_path))


def test_a_budget_below_one_replica_and_wrong_fields_are_one_line(
    tmp_path: Path, capsys: Capture
) -> None:
    common = [trace(tmp_path), "--pool", pool(tmp_path), "--cost-model", COST, "--anyway"]
    assert "there is no field speed" in refused(capsys, *common, "--only", "speed")
    assert "LOW below HIGH" in refused(capsys, *common, "--search", "windowSeconds=9..1")
    said = refused(capsys, *common, "--resume", "--output", str(tmp_path / "out"))
    assert "nothing to go on with" in said


def start(
    folder: Path, *arguments: str, requests: int = 150, seconds: float = 90.0, **scaling: Any
) -> "subprocess.Popen[str]":
    """A command in a process group of its own, as a shell starts it."""
    words = [sys.executable, "-m", "pando", "tune", trace(folder, requests, seconds)]
    words += ["--pool", pool(folder, **scaling)]
    words += ["--cost-model", COST, "--ttft-p99", "1", "--start-seconds", "15", "--anyway"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PANDO_TUNE_")}
    return subprocess.Popen(
        [*words, "--output", str(folder / "out"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def found(folder: Path) -> dict[str, Any]:
    """The findings, without what differs from run to run."""
    results: dict[str, Any] = json.loads((folder / "out" / "results.json").read_text())
    for point in results["points"]:
        for one in (point["searched"], point["tried"], point["judged"], *point["varied"].values()):
            if one:
                del one["wall_s"]
    for one in results["contributions"]:
        del one["without"]["wall_s"]
    return results


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_search_that_was_ended_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    process = start(whole, "--trials", "8", "--vary")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "Recommended is" in out or "Keep today's manifest" in out
    first = found(whole)
    _check_manifest(whole, first)
    values = {one["name"]: one["values"] for one in first["points"]}
    tried = [one for name, one in values.items() if name.removeprefix("candidate ").isdigit()]
    assert tried
    assert not any(values[name] in tried for name in ("today", "defaults")), "they were played"
    assert all(tried.count(one) == 1 for one in tried)

    process = start(cut, "--trials", "8", "--vary", "--jobs", "1")
    runs = cut / "out" / "runs.jsonl"
    until(
        lambda: runs.exists() and len(runs.read_text().splitlines()) > 5,
        "some runs have ended",
        400,
    )
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "The search was interrupted; this is what it had found until then, and" in out
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive

    process = start(cut, "--trials", "8", "--vary", "--resume")
    out, err = process.communicate()
    assert process.returncode == 0, err
    again = found(cut)
    for results in (first, again):
        del results["about"]
    assert again == first

    process = start(cut, "--trials", "8", "--resume", "--seed", "1")
    _, err = process.communicate()
    assert process.returncode == 2
    assert "is of another search" in err


def _check_manifest(folder: Path, results: dict[str, Any]) -> None:
    """The manifest is one that the operator accepts, and the page has every plot's names."""
    document = yaml.safe_load((folder / "out" / "pool.yaml").read_text())
    assert parse(document).spec.scaling.max_replicas == 3
    page = (folder / "out" / "report.html").read_text()
    assert page.count("<title>today&#x27;s manifest: ") == 2, "searched and judged"
    assert "{{" not in page
    judged = [one for one in results["points"] if one["judged"]]
    assert {"today", "defaults", results["recommended"]} <= {one["name"] for one in judged}


@pytest.mark.long
def test_as_good_as_today_costs_less_and_misses_no_more(tmp_path: Path) -> None:
    """Today's manifest keeps replicas that the load does not need."""
    options = ("--trials", "1", "--as-good-as-today")
    process = start(tmp_path, *options, requests=40, seconds=240.0, minReplicas=3)
    out, err = process.communicate()
    assert process.returncode == 0, err
    points = {one["name"]: one for one in found(tmp_path)["points"]}
    best, today = points[found(tmp_path)["recommended"]], points["today"]
    for part in ("searched", "judged"):
        assert best[part]["allowed"] == today[part]["missed"] == today[part]["allowed"]
        assert best[part]["missed"] <= today[part]["missed"]
        assert best[part]["gpu_hours"] < 0.9 * today[part]["gpu_hours"]
    assert "Asked for: no more misses of a first token within 1 s" in out


def test_fewest_misses_and_fewest_hours_are_not_asked_for_at_once(
    tmp_path: Path, capsys: Capture
) -> None:
    asked = ("--budget", "400", "--as-good-as-today")
    said = refused(capsys, trace(tmp_path), "--pool", pool(tmp_path), *asked)
    assert "budget and as-good-as-today exclude each other" in said


@pytest.mark.long
def test_a_target_that_no_size_reaches_is_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, "--trials", "6", "--ttft-p99", "0.001")
    _, err = process.communicate()
    assert process.returncode == 2
    said = err.splitlines()[-1]
    assert said.startswith("pando tune: no number of replicas up to maxReplicas, 3, reaches this")


@pytest.mark.long
def test_a_long_part_is_tried_and_judged_on_excerpts(tmp_path: Path) -> None:
    process = start(tmp_path, "--trials", "6", "--excerpt", "100", requests=600, seconds=28800.0)
    out, err = process.communicate()
    assert process.returncode == 0, err
    results = found(tmp_path)
    about, points = results["about"], {one["name"]: one for one in results["points"]}
    assert about["tried_on"] < 200 < about["checked_on"] < about["searched_requests"]
    for name in {"today", "defaults", results["recommended"]}:
        assert points[name]["searched"]["requests"] == about["checked_on"]
        assert points[name]["judged"]["requests"] == about["judged_requests"]
    assert 200 < about["judged_requests"] <= 300 < about["other_requests"]
    rest = [one for one in points.values() if one["is_only_tried"]]
    assert rest
    assert {one["searched"]["requests"] for one in rest} == {about["tried_on"]}
    assert "Candidates were tried on stretches of the part" in out
    judging = f"stretches with {about['judged_requests']} of the {about['other_requests']} of the"
    assert judging in out
    assert "Schedules by hour were not searched: the trace, as it is played, does not say" in out


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_burst_of_every_morning_gets_a_schedule_that_begins_before_it(tmp_path: Path) -> None:
    """A replica starts in two minutes, so whoever waits for the burst is late."""
    options = ["--only", "schedules", "--trials", "6", "--excerpt", "100", "--anyway"]
    options += ["--start-seconds", "120", "--cost-model", "h200-llama-3.3-70b-fp8"]
    words = [sys.executable, "-m", "pando", "tune", mornings(tmp_path, days=3), *options]
    words += ["--pool", pool(tmp_path, maxReplicas=5), "--output", str(tmp_path / "out")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    document = yaml.safe_load((tmp_path / "out" / "pool.yaml").read_text())
    (entry,) = document["spec"]["scaling"]["schedules"]
    minute, hour = map(int, entry["cron"].split()[:2])
    begin = 60 * hour + minute
    assert 8 * 60 < begin <= 9 * 60 - 2, "the replicas are ready at 9:00"
    assert begin + entry["durationSeconds"] / 60 >= 9 * 60 + 2
    assert parse(document).spec.scaling.schedules[0].min_replicas == entry["minReplicas"]
    results = found(tmp_path)
    points = {one["name"]: one for one in results["points"]}
    best, today = points[results["recommended"]]["judged"], points["today"]["judged"]
    assert best["missed"] < 0.2 * today["missed"], "the day that was held out agrees"
    changed = {one["path"] for one in results["contributions"]}
    assert "scaling.schedules.minReplicas" in changed
    patch = json.loads((tmp_path / "out" / "patch.json").read_text())
    assert patch["spec"]["scaling"]["schedules"] == [entry]
