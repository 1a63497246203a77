"""The GPU benchmark on the CPU: its arithmetic, and a dry run of all parts."""

from pathlib import Path

import msgspec
import pytest
import torch
from click.testing import CliRunner

from bench.engine import gpu_engine
from bench.engine.gpu.ceilings import peak_of
from bench.engine.gpu.parts import busy_share, median
from bench.engine.gpu.report import Report
from bench.engine.gpu.shapes import DRY_SHAPES, SHAPES, Shape
from pando_worker.models.config import read_config
from pando_worker.models.loading.loader import build_model


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
    assert busy_share([(0, 4), (1, 2), (3, 5), (8, 10)]) == 0.7
    assert busy_share([(2, 3)]) == 1.0


def test_a_dry_run_fills_every_part_of_the_report(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    path = tmp_path / "result.json"
    done = CliRunner().invoke(gpu_engine.main, ["--dry", "--json", str(path)])
    torch.set_num_threads(threads)
    assert done.exit_code == 0, done.output + repr(done.exception)
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    assert [row.batch for row in report.decode] == report.sizes.batches
    assert all(row.tokens_per_s > 0 and row.ceiling > 0 for row in report.decode)
    assert report.prefill and report.prefill.of_product > 0
    assert report.prefill.mfu is None and "MFU unknown" in done.output
    assert "transformers (sdpa)" in done.output
    cached = [row.cached_tokens for row in report.first_tokens]
    assert cached[0] == 0 < cached[1] < cached[2]
    assert report.busy and 0 < report.busy.share <= 1
    assert [row.batch for row in report.rival] == [row.batch for row in report.end_to_end]
    assert "### tiny llama on CPU, dry run" in done.output


def test_parts_can_be_left_out_and_unknown_ones_are_refused() -> None:
    arguments = ["--dry", "--model", "qwen3-30b-a3b", "--parts"]
    done = CliRunner().invoke(gpu_engine.main, [*arguments, "prefill", "--peak-tflops", "2"])
    assert done.exit_code == 0, done.output
    assert "of a peak of 2 TFLOP/s" in done.output and "decode batch" not in done.output
    refused = CliRunner().invoke(gpu_engine.main, [*arguments, "dekode"])
    assert refused.exit_code == 2 and "dekode" in refused.output
