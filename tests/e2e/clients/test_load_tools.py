"""Programs that measure models and servers, as docs/clients.md starts them, on a real fleet."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.e2e.clients.venvs import new_enough, python_of
from tests.e2e.up_process import UpProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]  # the first run installs them

PAGE = ROOT / "docs/clients.md"
PAGES_URL = "http://127.0.0.1:8000"
PATIENCE_S = 480  # each starts an interpreter with torch


def run_block(tool: str, up: UpProcess, folder: Path, **environment: str) -> None:
    """Runs the shell block of the page's section about this tool in a folder that looks like the
    checkout."""
    for part in ("examples", "tests"):
        (folder / part).symlink_to(ROOT / part)
    lines = PAGE.read_text().splitlines()
    at = lines.index(f"## {tool}") + 1
    text = next(one.text for one in blocks(PAGE) if one.language == "sh" and one.line > at)
    assert PAGES_URL in text
    run(["bash", "-ec", text.replace(PAGES_URL, up.url)], tool, folder, **environment)


def run(command: list[str], tool: str, folder: Path, **environment: str) -> str:
    path = f"{python_of(tool).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(folder), "HF_HOME": str(folder / "hf"), "TQDM_DISABLE": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=own | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


OFFLINE = {"HF_HUB_OFFLINE": "1"}


def test_lm_eval_scores_the_model_as_its_hf_backend_does(up: UpProcess, tmp_path: Path) -> None:
    """Log-probabilities of echoed prompts within 1e-3 of theirs, and the same greedy answers."""
    run_block("lm-eval", up, tmp_path, **OFFLINE)
    script = [str(python_of("lm-eval")), "tests/e2e/clients/hf_scores.py"]
    out = run([*script, "examples/models/pando-tiny"], "lm-eval", tmp_path, **OFFLINE)
    truth = json.loads(out.splitlines()[-1])
    for task, wanted in truth.items():
        [results] = (tmp_path / "scores").glob(f"{task}/*/results_*.json")
        scores = json.loads(results.read_text())["results"][task]
        answers = answers_of(results.parent, task)
        for name in ("acc,none", "acc_norm,none", "exact_match,none"):
            assert scores.get(name) == wanted["scores"].get(name)
        if task == "pando_words":
            assert answers == wanted["answers"]
            continue
        for got, expected in zip(flat(answers), flat(wanted["answers"]), strict=True):
            assert got == pytest.approx(expected, abs=1e-3)


def answers_of(folder: Path, task: str) -> list[Any]:
    [samples] = folder.glob(f"samples_{task}_*.jsonl")
    found = [json.loads(line) for line in samples.read_text().splitlines()]
    return [one["resps"] for one in sorted(found, key=lambda one: int(one["doc_id"]))]


def flat(answers: list[Any]) -> list[float]:
    """The log-probability of each choice."""
    return [float(choice[0][0]) for answer in answers for choice in answer]


def test_guidellm_measures_all_its_requests_with_its_default_validation(
    up: UpProcess, tmp_path: Path
) -> None:
    run_block("guidellm", up, tmp_path, **OFFLINE)
    [benchmark] = json.loads((tmp_path / "guidellm.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"], totals["incomplete"]) == (12, 0, 0)


def test_aiperf_measures_all_its_requests(up: UpProcess, tmp_path: Path) -> None:
    run_block("aiperf", up, tmp_path)  # offline it takes no tokenizer by its path
    found = json.loads((tmp_path / "aiperf/profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == 12
    assert found["error_summary"] == []
    assert found["time_to_first_token"]["count"] == 12


@pytest.mark.skipif(not new_enough("inference-perf"), reason="no Python of 3.12 or later is here")
def test_inference_perf_measures_all_its_requests(up: UpProcess, tmp_path: Path) -> None:
    run_block("inference-perf", up, tmp_path, **OFFLINE)
    found = json.loads((tmp_path / "inference-perf/summary_lifecycle_metrics.json").read_text())
    assert (found["successes"]["count"], found["failures"]["count"]) == (12, 0)


def test_vllms_benchmark_measures_all_its_requests(up: UpProcess, tmp_path: Path) -> None:
    run_block("vllm", up, tmp_path, **OFFLINE)
    found = json.loads((tmp_path / "vllm.json").read_text())
    assert (found["completed"], found["failed"]) == (12, 0)
    assert found["total_output_tokens"] == 12 * 8
