"""Kernels of flashinfer that an image has compiled: which are needed, and when they are used."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs

from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cuda import prebuilt
from pando_worker.cuda.prebuilt import (
    AttentionShape,
    Prebuilt,
    kernels_folder,
    read_prebuilt,
    write_record,
)
from pando_worker.runner.cuda import cuda_path, prebuild
from tests.worker.cuda.fake_gpu.engine import fake_engine
from tests.worker.model.checkpoints import Reference

NO_NVCC = "it compiles its kernels on this machine, where nvcc is missing"
OWN = AttentionShape(64, 64, "bfloat16", "bfloat16")
OF_IMAGE = Prebuilt("0.7.2", ["8.0", "8.9", "9.0a", "10.0f"], [OWN])


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3)])
def test_a_gpu_runs_what_is_compiled_for_its_generation(capability: tuple[int, int]) -> None:
    assert OF_IMAGE.lacks([OWN], capability) is None


@pytest.mark.parametrize("capability", [(7, 5), (9, 1), (12, 0)])
def test_other_gpus_are_named_beside_what_the_image_has(capability: tuple[int, int]) -> None:
    lacking = OF_IMAGE.lacks([OWN], capability)
    dotted = f"{capability[0]}.{capability[1]}"
    assert lacking == f"compute capability {dotted} (the image has 8.0, 8.9, 9.0a, 10.0f)"


def test_shapes_without_kernels_are_named() -> None:
    fp8 = AttentionShape(64, 64, "bfloat16", "float8_e4m3fn", sinks=True, windowed=True)
    named = "heads of 64 and 64, bfloat16 with keys in float8_e4m3fn, windowed, sinks"
    assert OF_IMAGE.lacks([OWN, fp8], (9, 0)) == named


def test_a_record_of_another_version_of_flashinfer_does_not_count(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernels_folder() == library / "data" / "aot"
    assert read_prebuilt() is None
    write_record(library / "data" / "aot", OF_IMAGE)
    assert read_prebuilt() == OF_IMAGE
    monkeypatch.setattr(prebuilt, "version", lambda _: "0.7.3")
    assert read_prebuilt() is None


@pytest.mark.parametrize("shapes", [[], [OWN]])
def test_a_worker_without_nvcc_runs_the_kernels_of_its_image_and_no_others(
    shapes: list[AttentionShape],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Reference(tmp_path, hidden_size=128, head_dim=64, dtype=torch.bfloat16)
    record = Prebuilt("0.7.2", ["8.0"], shapes)
    monkeypatch.setattr(cuda_path, "read_prebuilt", lambda: record)
    caplog.set_level(logging.INFO, "pando.worker.cuda")
    small: dict[str, Any] = {"max_total_tokens": 64, "context_length": 64}
    no_graphs: dict[str, Any] = {"cuda_graph_max_batch": 0, "cuda_graph_max_tokens": 0}
    with fake_engine(tmp_path, lacks=NO_NVCC, **small, **no_graphs) as engine:
        kind = FlashinferAttention if shapes else TorchAttention
        assert isinstance(engine.runner.attention, kind)
    if shapes:
        assert "flashinfer, with the kernels that this image has compiled" in caplog.text
    else:
        assert f"none is compiled for {OWN}; {NO_NVCC}" in caplog.text


class Spec:
    """A kernel of `library`: flashinfer's `JitSpec`."""

    folder: Path

    def __init__(self, name: str) -> None:
        self.name = name
        self.ninja_path = Path(f"/{name}/build.ninja")
        self.jit_library_path = Path(f"/{name}/{name}.so")
        self.written: list[str] = []

    def build_and_load(self) -> Any:
        raise AssertionError("there is no compiler here")

    def write_ninja(self) -> None:
        self.written.append(self.name)

    @property
    def is_aot(self) -> bool:
        return (self.folder / self.name / f"{self.name}.so").exists()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flashinfer whose functions only ask for kernels, named after what they depend on; returns
    its folder."""
    folder = tmp_path / "flashinfer"
    (folder / "data" / "aot").mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.setattr(Spec, "folder", folder / "data" / "aot", raising=False)
    # Found, and not imported: the modules below stand for it.
    monkeypatch.setattr(prebuilt, "find_spec", lambda _: SimpleNamespace(origin=f"{folder}/x.py"))
    monkeypatch.setattr(prebuilt, "version", lambda _: "0.7.2")
    monkeypatch.setattr(prebuild, "version", lambda _: "0.7.2")

    def capability(device: torch.device) -> tuple[int, int]:
        raise ValueError("device must be a cuda device")

    def asks(name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: Spec(name).build_and_load()

    class Wrapper:
        def __init__(self, workspace: torch.Tensor, *args: Any, **options: Any) -> None:
            torch.empty(8, pin_memory=True)  # as the real ones have pinned memory
            self.options = options

        def reset_workspace_buffer(self, *buffers: torch.Tensor) -> None:
            pass

        def plan(self, *args: Any, **options: Any) -> None:
            self.options |= options
            hopper = root.get_compute_capability(torch.device("cpu")) == (9, 0)
            parts = [type(self).__name__, self.options.get("backend", "auto"), str(hopper)]
            parts += [str(self.options[name]) for name in ("q_data_type", "kv_data_type")]
            parts += [str(self.options.get(name, -1)) for name in ("head_dim_vo", "window_left")]
            Spec("-".join(parts)).build_and_load()

    class Decode(Wrapper):
        pass

    class Latents(Wrapper):
        pass

    root, core = ModuleType("flashinfer"), ModuleType("flashinfer.jit.core")
    vars(core)["JitSpec"] = Spec
    names: tuple[str, ...] = (
        "rmsnorm",
        "fused_add_rmsnorm",
        "gemma_rmsnorm",
        "gemma_fused_add_rmsnorm",
    )
    names += ("silu_and_mul", "gelu_tanh_and_mul", "append_paged_kv_cache", "merge_state")
    for name in (*names, "apply_rope_with_cos_sin_cache", "apply_rope_with_cos_sin_cache_inplace"):
        vars(root)[name] = asks(name.removesuffix("_inplace"))
    vars(root).update(
        get_compute_capability=capability,
        BatchDecodeWithPagedKVCacheWrapper=Decode,
        BatchPrefillWithPagedKVCacheWrapper=Wrapper,
        BatchAttentionWithAttentionSinkWrapper=Wrapper,
        BatchMLAPagedAttentionWrapper=Latents,
        MLAPlanMetadata=SimpleNamespace(csr=lambda *arrays: arrays),
    )
    for name in ("flashinfer", "flashinfer.attention", "flashinfer.mla"):
        monkeypatch.setitem(sys.modules, name, root)
    monkeypatch.setitem(sys.modules, "flashinfer.jit.core", core)
    return folder


def test_what_workers_ask_flashinfer_for_is_found_without_a_gpu(library: Path) -> None:
    asked = prebuild.needed_kernels(
        [OWN, AttentionShape(64, 512, "bfloat16", "bfloat16", latent=True)]
    )
    both = "torch.bfloat16-torch.bfloat16"
    assert set(asked) == {
        "append_paged_kv_cache",
        "apply_rope_with_cos_sin_cache",
        "gelu_tanh_and_mul",
        "merge_state",
        "silu_and_mul",
        f"Wrapper-fa2-True-{both}-64--1",
        f"Wrapper-auto-True-{both}-64--1",
        f"Decode-fa2-True-{both}--1--1",
        f"Latents-fa2-True-{both}--1--1",
        f"Latents-fa3-True-{both}--1--1",
    }
    # FlashAttention 3 takes queries of the type of keys.
    narrow = AttentionShape(64, 64, "bfloat16", "float8_e4m3fn")
    e4m3 = "torch.float8_e4m3fn"
    found = {name for name in prebuild.needed_kernels([narrow]) if "auto" in name}
    assert found == {f"Wrapper-auto-True-{e4m3}-{e4m3}-64--1"}
    windowed = structs.replace(narrow, windowed=True)
    assert not {name for name in prebuild.needed_kernels([windowed]) if "auto" in name}


def test_an_images_check_names_the_kernels_that_are_missing(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(prebuild.ARCHITECTURES, "9.0a")
    assert prebuild.missing_kernels() == ["pando.json, the record of this version's kernels"]
    built = tmp_path / "built"
    built.mkdir()
    prebuild.write(built)
    record = (built / "aot" / "pando.json").read_bytes()
    (library / "data" / "aot" / "pando.json").write_bytes(record)
    missing = prebuild.missing_kernels()
    ninja = (built / "build.ninja").read_text()
    assert "merge_state" in missing
    assert all(f"build aot/{name}/{name}.so: copy /{name}/{name}.so" in ninja for name in missing)
    for name in missing:
        (library / "data" / "aot" / name).mkdir()
        (library / "data" / "aot" / name / f"{name}.so").touch()
    assert prebuild.missing_kernels() == []
