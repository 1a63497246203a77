"""The kernels are built once, used if wanted and possible, and change no token."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.build import KernelsUnavailable
from pando_worker.cpu.library import load_kernels
from pando_worker.models.errors import UnsupportedModel
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World


def runner(model: Path, **settings: Any) -> TorchModelRunner:
    fixed = {"page_size": 4, "max_total_tokens": 4000, "threads": 1}
    return TorchModelRunner(WorkerSettings(model=str(model), **fixed | settings))


@pytest.mark.long  # compiles for 20 s
def test_a_library_is_built_once(empty_cache: Path) -> None:
    load_kernels()
    [first] = empty_cache.glob("*.so")
    made = first.stat().st_mtime_ns
    load_kernels()
    assert [path.stat().st_mtime_ns for path in empty_cache.glob("*.so")] == [made]


def test_a_compiler_that_fails_is_named_with_its_message(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "broken-compiler"
    compiler.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setitem(os.environ, "CXX", str(compiler))
    with pytest.raises(KernelsUnavailable, match=r"broken-compiler failed: no such flag"):
        load_kernels()
    assert not list(empty_cache.glob("*.so"))


def test_without_a_compiler_torch_serves_and_on_is_refused(
    tmp_path: Path,
    empty_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Reference(tmp_path)
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    monkeypatch.delitem(os.environ, "CXX", raising=False)
    caplog.set_level(logging.INFO, "pando.worker.cpu")
    runner(tmp_path, cpu_kernels="auto")
    assert "CPU path: torch, for there are no kernels: no C++ compiler" in caplog.text
    with pytest.raises(UnsupportedModel, match="cpu_kernels is 'on', but no C\\+\\+ compiler"):
        runner(tmp_path, cpu_kernels="on")


def test_on_is_refused_for_a_dtype_without_kernels(tmp_path: Path) -> None:
    Reference(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"float32, not torch\.bfloat16"):
        runner(tmp_path, cpu_kernels="on", dtype="bfloat16")


def test_the_log_says_what_was_chosen_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Reference(tmp_path)
    caplog.set_level(logging.INFO, "pando.worker.cpu")
    runner(tmp_path, cpu_kernels="auto")
    assert "CPU path: " in caplog.text
    assert "a step's ms with torch and with kernels: 1 rows " in caplog.text


@pytest.mark.parametrize("page_size", [1, 16])
def test_greedy_tokens_with_kernels_equal_those_of_transformers(
    tmp_path: Path, page_size: int
) -> None:
    reference = Reference(tmp_path)
    model = runner(tmp_path, cpu_kernels="on", page_size=page_size)
    assert isinstance(model.attention, CpuAttention)
    world = World(
        pages=1024 // page_size, page_size=page_size, runner=model, chunked_prefill_size=32
    )
    shared = prompt(48)
    prompts = {f"r{i}": [*shared[: 16 * i], *prompt(9 + 7 * i, seed=i)] for i in range(5)}
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=12)
    world.run()
    for rid, tokens in prompts.items():
        assert world.tokens[rid] == reference.greedy(tokens, 12)
