"""What a machine lacks to compile kernels, and what the worker does about it."""

import logging
import sys
from pathlib import Path

import pytest
import torch

from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cuda.toolchain import missing_for_flashinfer, missing_for_triton
from pando_worker.models.errors import UnsupportedModel
from tests.worker.cuda.fake_gpu.engine import fake_engine
from tests.worker.model.checkpoints import Reference

NAMES = ("CUDA_HOME", "CUDA_PATH", "FLASHINFER_NVCC", "CXX", "CC")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any program, and with flashinfer; returns the folder of `PATH`."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    programs, packages = tmp_path / "bin", tmp_path / "packages"
    programs.mkdir()
    (packages / "flashinfer").mkdir(parents=True)
    (packages / "flashinfer" / "__init__.py").touch()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    monkeypatch.setattr("pando_worker.cuda.toolchain._DEFAULT_CUDA", tmp_path / "cuda")
    return programs


def install(folder: Path, *programs: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)


def test_what_is_missing_for_flashinfer_is_named(machine: Path) -> None:
    reason = missing_for_flashinfer()
    assert reason is not None and "nvcc, ninja and a C++ compiler are missing" in reason
    install(machine, "ninja", "c++")
    reason = missing_for_flashinfer()
    assert reason is not None and "this machine, where nvcc is missing" in reason
    install(machine, "nvcc")
    assert missing_for_flashinfer() is None


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", None])
def test_nvcc_is_found_where_flashinfer_finds_it(
    name: str | None, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(machine, "ninja", "c++")
    home = machine.parent / ("cuda" if name is None else "another")
    if name is not None:
        monkeypatch.setenv(name, str(home))
    assert missing_for_flashinfer() is not None
    install(home / "bin", "nvcc")
    assert missing_for_flashinfer() is None


def test_compiled_kernels_need_no_compiler(machine: Path) -> None:
    (machine.parent / "packages" / "flashinfer_jit_cache").mkdir()
    assert missing_for_flashinfer() is None


def test_triton_takes_the_compiler_of_cc_or_gcc_or_clang(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert missing_for_triton() == "Triton needs a C compiler, and there is no gcc or clang"
    install(machine, "clang")
    assert missing_for_triton() is None
    monkeypatch.setenv("CC", "icx")
    assert missing_for_triton() == "Triton needs a C compiler, and there is no icx"


def test_a_worker_without_nvcc_runs_on_torch_or_ends_if_flashinfer_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Reference(tmp_path, hidden_size=128, head_dim=64, dtype=torch.bfloat16)
    reason = "it compiles its kernels on this machine, where nvcc is missing"
    caplog.set_level(logging.WARNING, "pando.worker.cuda")
    with fake_engine(tmp_path, lacks=reason, max_total_tokens=64, context_length=64) as engine:
        assert isinstance(engine.runner.attention, TorchAttention)
    assert f"CUDA path: torch, since flashinfer cannot be used: {reason}" in caplog.text
    with (
        pytest.raises(UnsupportedModel, match=f"attention_backend is 'flashinfer', but {reason}"),
        fake_engine(tmp_path, lacks=reason, attention_backend="flashinfer"),
    ):
        pass
