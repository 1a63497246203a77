"""How a model is loaded: each setting takes effect."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig

from pando_worker import cores
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.parallel import ParallelGroup
from pando_worker.models.transformers_backend.model import TransformersCausalLM
from pando_worker.progress import Stage
from pando_worker.runner.loading import LoadedModel, load_model
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference

# Numbers per token in the pool: layers, K and V, KV heads, head dim.
CELL = 2 * 2 * 2 * 8


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Reference(tmp_path_factory.mktemp("llama")).path


def load(model_dir: Path, **settings: Any) -> LoadedModel:
    fields = {"model": str(model_dir), "max_total_tokens": 64, **settings}
    return load_model(WorkerSettings.model_validate(fields), ParallelGroup())


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("auto", CausalLM),
        ("pando", CausalLM),
        ("transformers", TransformersCausalLM),
    ],
)
def test_the_model_runs_by_the_code_that_was_asked_for(
    model_dir: Path, setting: str, kind: type
) -> None:
    assert isinstance(load(model_dir, model_impl=setting).model, kind)


@pytest.mark.parametrize("code", ["pando", "transformers"])
def test_a_start_is_reported_by_stages_and_weights_by_their_share(
    model_dir: Path, code: str
) -> None:
    heard: list[tuple[Stage, float]] = []
    settings = WorkerSettings.model_validate(
        {"model": str(model_dir), "max_total_tokens": 64, "model_impl": code}
    )
    TorchModelRunner(settings, report=lambda stage, done: heard.append((stage, done)))
    assert list(dict.fromkeys(stage for stage, _ in heard)) == [Stage.WEIGHTS, Stage.KERNELS]
    shares = [done for stage, done in heard if stage is Stage.WEIGHTS]
    assert shares == sorted(shares) and shares[0] == 0.0
    if code == "pando":  # transformers fills its weights in one call
        assert len(shares) > 10 and shares[-1] == 1.0


def test_weights_and_pool_have_the_types_that_were_asked_for(model_dir: Path) -> None:
    def dtypes(**settings: str) -> tuple[torch.dtype, torch.dtype]:
        loaded = load(model_dir, **settings)
        [of_weights] = {weight.dtype for weight in loaded.model.parameters()}
        assert loaded.dtype == of_weights
        [of_pool] = {part.dtype for part in (*loaded.kv_pool.k, *loaded.kv_pool.v)}
        return of_weights, of_pool

    assert dtypes() == (torch.float32, torch.float32)
    assert dtypes(dtype="float16") == (torch.float16, torch.float16)
    assert dtypes(dtype="bfloat16") == (torch.bfloat16, torch.bfloat16)
    assert dtypes(kv_cache_dtype="bfloat16") == (torch.float32, torch.bfloat16)
    assert dtypes(dtype="bfloat16", kv_cache_dtype="fp8_e4m3") == (
        torch.bfloat16,
        torch.float8_e4m3fn,
    )


@pytest.mark.parametrize("fraction", [0.25, 0.8])
def test_the_pool_gets_its_fraction_of_what_the_weights_leave(
    model_dir: Path, fraction: float
) -> None:
    loaded = load(
        model_dir,
        memory_gib=2**20 / 2**30,
        mem_fraction_static=fraction,
        max_total_tokens=None,
        page_size=1,
    )
    weights = sum(weight.nbytes for weight in loaded.model.parameters())
    assert loaded.weight_bytes == weights
    assert loaded.capacity_tokens == int((2**20 - weights) * fraction) // (CELL * 4)
    assert [len(part) for part in loaded.kv_pool.k] == [loaded.capacity_tokens] * 2


def test_the_pool_is_capped_in_whole_pages(model_dir: Path) -> None:
    assert load(model_dir, max_total_tokens=50, page_size=4).capacity_tokens == 48
    assert load(model_dir, max_total_tokens=50, page_size=32).capacity_tokens == 32


def test_the_context_is_the_models_unless_a_shorter_one_was_asked_for(model_dir: Path) -> None:
    assert load(model_dir).context_length == 1024
    assert load(model_dir, context_length=100).context_length == 100
    with pytest.raises(UnsupportedModel, match="context_length 1025 exceeds the 1024 positions"):
        load(model_dir, context_length=1025)


def test_dummy_weights_are_not_those_of_the_files(model_dir: Path) -> None:
    files, dummy = load(model_dir), load(model_dir, load_format="dummy")
    for mine, theirs in zip(files.model.parameters(), dummy.model.parameters(), strict=True):
        assert mine.shape == theirs.shape
        assert mine.dim() == 1 or not torch.equal(mine, theirs)
    with pytest.raises(UnsupportedModel, match="does not support models of transformers"):
        load(model_dir, load_format="dummy", model_impl="transformers")


def test_the_model_has_the_threads_that_were_asked_for(model_dir: Path) -> None:
    before = torch.get_num_threads()
    settings = {"model": str(model_dir), "max_total_tokens": 64, "cpu_kernels": "off"}
    try:
        for threads in (1, 3):
            TorchModelRunner(WorkerSettings.model_validate(settings | {"threads": threads}))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_the_model_has_no_more_threads_than_the_quota_has_cores(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    monkeypatch.setattr(cores, "CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    settings = {"model": str(model_dir), "max_total_tokens": 64, "cpu_kernels": "off"}
    before = torch.get_num_threads()
    try:
        for of_node, expected in ((8, 2), (1, 1)):
            torch.set_num_threads(of_node)
            TorchModelRunner(WorkerSettings.model_validate(settings))
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def test_a_model_of_our_own_needs_no_transformers() -> None:
    """It would take most of a second of every start."""
    program = (
        "import sys\n"
        "from pando_worker.engine import process\n"
        "from pando_worker.models.families import decoder\n"
        "from pando_worker.runner import model_runner\n"
        "sys.exit('transformers' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_whole_experts_are_for_mixtures_on_several_ranks(tmp_path: Path, model_dir: Path) -> None:
    asked = {"enable_expert_parallel": True, "tensor_parallel_size": 2}
    with pytest.raises(UnsupportedModel, match=r"LlamaForCausalLM\) has none"):
        load(model_dir, **asked)
    mixture = Reference(tmp_path, config_type=Qwen3MoeConfig, num_experts=6, head_dim=8).path
    settings = WorkerSettings.model_validate({"model": str(mixture), **asked})
    loaded = load_model(settings, AloneInTwo(1, 2))
    [moe, *_] = [m for m in loaded.model.modules() if isinstance(m, MixtureOfExperts)]
    assert moe.experts == range(3, 6)
    for other, message in (
        ({"tensor_parallel_size": 1}, "needs tensor_parallel_size above 1"),
        ({"max_loras": 1}, "does not go with max_loras"),
    ):
        with pytest.raises(ValueError, match=message):
            WorkerSettings.model_validate({"model": str(mixture), **asked, **other})


class AloneInTwo(ParallelGroup):
    """A rank whose others agree with it."""

    def gather(self, thing: Any) -> list[Any]:
        return [thing] * self.size
