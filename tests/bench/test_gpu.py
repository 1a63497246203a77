"""The GPU benchmark on the CPU: its arithmetic, and a dry run of all parts."""

import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from bench.gpu import speed
from bench.gpu.__main__ import stages
from bench.gpu.ceilings import peak_of
from bench.gpu.parts import covered_time, median
from bench.gpu.report import Report
from bench.gpu.shapes import DRY_SHAPES, SHAPES, Shape
from bench.gpu.stages import Outcome, Stage, page, run
from bench.gpu.tune import tune
from pando_worker.attention.flashinfer.kernel_choice import Heads, choose_by
from pando_worker.attention.flashinfer.library import FlashinferUnavailable, Library
from pando_worker.models.config import read_config
from pando_worker.models.loading.building import build_model
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook


@pytest.mark.parametrize("shape", [*SHAPES.values(), *DRY_SHAPES.values()], ids=lambda s: s.name)
def test_a_large_batch_reads_every_matrix_but_the_embedding(shape: Shape, tmp_path: Path) -> None:
    shape.save(tmp_path)
    config = read_config(tmp_path)
    model = build_model(config, torch.bfloat16, torch.device("cpu"), context_length=256)
    matrices = {name: p.numel() for name, p in model.named_parameters() if p.dim() > 1}
    read = sum(matrices.values()) - matrices["model.embed_tokens.weight.matrix"]
    assert shape.weights_read(10**6) == pytest.approx(read, rel=1e-9)
    assert shape.weights_read(1) <= read


def test_known_sizes_come_out() -> None:
    llama, qwen = SHAPES["llama-3-8b"], SHAPES["qwen3-30b-a3b"]
    assert llama.weights_read(1) == pytest.approx(7.5e9, rel=0.01)  # 8.03 without the embedding
    assert qwen.weights_read(10**6) == pytest.approx(30.2e9, rel=0.01)
    assert qwen.weights_read(1) == pytest.approx(3.0e9, rel=0.05)  # active, by its name
    assert llama.cell_values * 2 == 128 * 1024  # bytes of a token in bfloat16
    # Two per weight and token, plus a little for the scores of short contexts.
    assert llama.prefill_flops(1000, 1) == pytest.approx(2 * 6.98e9 * 1000, rel=0.01)


def test_a_peak_is_that_of_the_longest_name() -> None:
    assert peak_of("NVIDIA H200") == 989.4e12
    assert peak_of("NVIDIA H200 NVL") == 835.5e12
    assert peak_of("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_of("CPU, dry run") is None


def test_the_first_round_does_not_count() -> None:
    assert median(3, [100.0, 1.0, 5.0, 2.0].__getitem__) == 2.0


def test_time_that_is_covered_twice_counts_once() -> None:
    assert covered_time([(0, 4), (1, 2), (3, 5), (8, 10)]) == (7, 10)
    assert covered_time([(2, 3)]) == (1, 1)


def test_a_dry_run_fills_every_part_of_the_report(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    path = tmp_path / "result.json"
    done = CliRunner().invoke(speed.main, ["--dry", "--json", str(path)])
    torch.set_num_threads(threads)
    assert done.exit_code == 0, done.output + repr(done.exception)
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    assert [row.batch for row in report.decode] == report.sizes.batches
    assert all(row.tokens_per_s > 0 and row.ceiling > 0 for row in report.decode)
    assert [(row.prompts, row.prompt_tokens) for row in report.prefill] == report.sizes.prefills
    assert all(row.of_product > 0 and row.mfu is None for row in report.prefill)
    assert "unknown: the device's peak is" in done.output
    assert report.shared and report.shared.ratio > 0 and "if they share these" in done.output
    assert "transformers (sdpa)" in done.output
    cached = [row.cached_tokens for row in report.first_tokens]
    assert cached[0] == 0 < cached[1] < cached[2]
    assert report.busy and 0 < report.busy.share <= 1 and report.busy.gap_us >= 0
    assert [row.batch for row in report.rival] == [row.batch for row in report.end_to_end]
    assert "### tiny llama on CPU, dry run" in done.output


def test_parts_can_be_left_out_and_unknown_ones_are_refused() -> None:
    arguments = ["--dry", "--model", "qwen3-30b-a3b", "--parts"]
    done = CliRunner().invoke(speed.main, [*arguments, "prefill", "--peak-tflops", "2"])
    assert done.exit_code == 0, done.output
    assert "of a peak of 2 TFLOP/s" in done.output and "decode batch" not in done.output
    refused = CliRunner().invoke(speed.main, [*arguments, "dekode"])
    assert refused.exit_code == 2 and "dekode" in refused.output


def test_a_table_of_kernels_has_each_call_that_fits_and_the_worker_chooses_by_it() -> None:
    heads = Heads(heads=4, kv_heads=2, head_dim=64, v_head_dim=64)
    table = tune(
        torch.device("cpu"),
        cast(Library, ByTheBook()),
        shapes=[heads],
        grid=[(1, 4, 40), (2, 16, 16), (64, 16, 4096)],
        most_tokens=256,
    )
    [found] = table.measured
    assert found.heads == heads
    assert [(point.rows, point.new, point.keys) for point in found.points] == [
        (1, 4, 40),
        (2, 16, 16),
    ]
    assert all(point.fa2_us > 0 and point.fa3_us > 0 for point in found.points)
    for point in found.points:
        choice = choose_by(table, heads, 132)
        sizes = (np.full(point.rows, count, dtype=np.int32) for count in (point.new, point.keys))
        assert choice(*sizes) == (point.fa3_us < point.fa2_us)


def test_shapes_that_one_kernel_alone_computes_have_no_table() -> None:
    shapes = [Heads(heads=4, kv_heads=2, head_dim=192, v_head_dim=128)]
    with pytest.raises(FlashinferUnavailable, match="nothing to choose"):
        tune(torch.device("cpu"), cast(Library, ByTheBook()), shapes=shapes, most_tokens=256)


def test_the_other_programs_run_after_one_that_fails_and_the_page_says_so_first(
    tmp_path: Path,
) -> None:
    def program(name: str, code: str) -> Stage:
        return Stage(name, [sys.executable, "-c", code], limit_s=60)

    outcomes = [
        run(stage, tmp_path)
        for stage in (
            program("right", "print('== 3 passed ==')"),
            program("wrong", "print('why'); raise SystemExit(3)"),
            # With a child, which holds the other end of its output.
            Stage("slow", ["sh", "-c", "sleep 600 & sleep 600"], 1),
        )
    ]
    assert [outcome.failure for outcome in outcomes] == [
        None,
        "ended with 3",
        "ran longer than 1 s",
    ]
    lines = page(outcomes).splitlines()
    assert lines[2] == "## Failed: wrong, ended with 3" and "why" in lines
    assert "## Failed: slow, ran longer than 1 s" in lines
    assert lines.index("## Failed: slow, ran longer than 1 s") < lines.index(
        "| program | result | seconds |"
    )
    assert "| right | 3 passed | 0 |" in lines


def test_the_programs_have_ten_minutes_together(tmp_path: Path) -> None:
    assert sum(stage.limit_s for stage in stages(tmp_path, dry=False)) <= 600


@pytest.mark.long
def test_a_dry_run_of_everything_writes_its_page_and_numbers(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "bench.gpu", "--dry", "--output", str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    text = (tmp_path / "gpu.md").read_text()
    assert text.strip() in ended.stdout
    assert "## tiny llama on CPU, dry run" in text and "## tiny qwen3-moe on CPU" in text
    outcomes = msgspec.json.decode((tmp_path / "gpu.json").read_bytes(), type=list[Outcome])
    assert [outcome.failure for outcome in outcomes] == [None] * 3
    assert "skipped" in outcomes[0].output
