"""The whole engine on fake GPUs, which forbid what CUDA forbids: random requests, with aborts,
retraction, a host tier, grammars, adapters and two ranks, each answer as transformers and peft give
it; and each of a sheet of mutations is noticed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.attention.backend import KVScales
from pando_worker.attention.flashinfer.kernel_choice import Estimate
from pando_worker.attention.flashinfer.latent import LatentCall
from pando_worker.cuda.sum_norm import FlashinferSumNorm
from tests.worker.adapters.peft_adapters import PeftAdapters
from tests.worker.cuda.fake_gpu.engine import Engine, fake_engine
from tests.worker.cuda.fake_gpu.engine_world import (
    ADAPTERS,
    ROUNDING_TO_FP8,
    SMALL,
    small_reference,
)
from tests.worker.cuda.fake_gpu.memory import CudaError
from tests.worker.cuda.fake_gpu.mutations import (
    MORE,
    QUICK,
    Mutate,
    left_out,
    scales_are_not_read,
    scales_of_queries_are_not_read,
    tables_of_another_rank_stay,
)
from tests.worker.cuda.fake_gpu.random_requests import TOLERANCE, Client
from tests.worker.cuda.kernels.fp8_checkpoints import by_row, in_fp8
from tests.worker.model.checkpoints import Reference
from tests.worker.model.families import FAMILIES

SETTINGS: dict[str, Any] = SMALL | {"max_loras": 2, "lora_ranks": 64}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> PeftAdapters:
    folder = tmp_path_factory.mktemp("model")
    shape: dict[str, Any] = {"hidden_size": 128, "head_dim": 64, "num_attention_heads": 4}
    base = Reference(folder / "base", dtype=torch.bfloat16, std=0.1, **shape)
    return PeftAdapters(base, folder, ADAPTERS, dtype=torch.bfloat16, std=0.05)


@pytest.fixture(scope="module")
def engine(truth: PeftAdapters) -> Iterator[Engine]:
    with fake_engine(truth.base.path, **SETTINGS) as engine:
        yield engine


def ran(engine: Engine, truth: PeftAdapters, steps: int, seed: int = 0) -> Counter[str]:
    client = Client(engine.world(), truth, seed)
    client.run(steps)
    engine.gpu.check()
    return client.happened


def assert_noticed(
    mutate: Mutate, engine: Engine, truth: PeftAdapters, tolerance: float = TOLERANCE
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutate(engine, patch)
        with pytest.raises((CudaError, AssertionError, IndexError)) as caught:
            Client(engine.world(), truth, seed=0, tolerance=tolerance).run(150)
            engine.gpu.check()
    print("->", type(caught.value).__name__, str(caught.value)[:150])


EVENTS = ("greedy", "drawn", "even", "with adapters", "aborts", "loads", "retractions")


def test_every_answer_is_right_and_nothing_that_cuda_forbids_happens(
    engine: Engine, truth: PeftAdapters
) -> None:
    launched = engine.gpu.launched
    before = launched.copy()
    happened = ran(engine, truth, 100)
    assert launched["attention"] - before["attention"] > 100
    assert (
        launched["turn_heads, in a graph"] and not launched["apply_rope_with_cos_sin_cache_inplace"]
    )
    assert launched["draw_tokens"] - before["draw_tokens"] > 50 and not launched["cumsum"]
    # Norms are in graphs of decodes or in pieces, but where a vocabulary's adapter runs.
    outside = launched["fused_add_rmsnorm"] - before["fused_add_rmsnorm"]
    inside = "fused_add_rmsnorm, in a graph"
    assert outside * 20 < launched[inside] - before[inside], launched
    assert all(happened[event] for event in EVENTS), happened


def test_two_ranks_answer_likewise(truth: PeftAdapters) -> None:
    """On GPUs with a kernel that sums over ranks and normalises."""
    with fake_engine(truth.base.path, ranks=2, capability=(9, 0), **SETTINGS) as engine:
        happened = ran(engine, truth, 40)
        launched = engine.gpu.launched.copy()
        assert_noticed(tables_of_another_rank_stay, engine, truth)
    assert happened["tokens"] > 50 and happened["with adapters"], happened
    assert launched["allreduce_fusion, in a graph"] > 20, launched


@pytest.mark.long
def test_two_ranks_with_whole_experts_answer_likewise(tmp_path: Path) -> None:
    happened = others("qwen3-moe", tmp_path, 30, ranks=2, enable_expert_parallel=True)
    assert happened["tokens"] > 100


@pytest.mark.long
def test_two_ranks_that_sum_differently_are_noticed(
    truth: PeftAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_the_first(self: FlashinferSumNorm, x: torch.Tensor) -> bool:
        rank: int = self._workspace.rank
        return rank == 0

    monkeypatch.setattr(FlashinferSumNorm, "takes", on_the_first)
    engines = fake_engine(truth.base.path, ranks=2, capability=(9, 0), **SETTINGS)
    with pytest.raises(CudaError, match="ranks do not launch the same"), engines:
        pass


@pytest.mark.parametrize("name", ["gemma2", "qwen3-moe"])
def test_layers_with_windows_release_pages_and_experts_are_fused(name: str, tmp_path: Path) -> None:
    assert others(name, tmp_path, 30)["tokens"] > 100


@pytest.mark.parametrize(("name", "kernel"), [("llama", "turn_heads"), ("olmo2", "store_kv")])
def test_keys_and_values_in_fp8_are_stored_by_one_kernel(
    name: str, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Llama it also rotates heads. OLMo's norms over all heads do not fit it, so there another
    kernel only stores. For Llama the GPU is a Hopper, where extends take queries in fp8."""
    is_hopper = name == "llama"
    monkeypatch.setattr(Estimate, "__call__", lambda self, new, keys: True)  # FlashAttention 3
    gpu: dict[str, Any] = {"capability": (9, 0) if is_hopper else (8, 0), "shared_bytes": 20_000}
    case = FAMILIES[name]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64, "num_attention_heads": 2}
    if name == "olmo2":
        fields["num_key_value_heads"] = 2
    base = Reference(
        tmp_path / "base", config_type=case.config_type, dtype=torch.bfloat16, std=0.1, **fields
    )
    with fake_engine(base.path, kv_cache_dtype="fp8_e4m3", **gpu, **SMALL) as engine:
        truth = PeftAdapters(base, tmp_path, {})
        client = Client(engine.world(), truth, seed=0, tolerance=ROUNDING_TO_FP8)
        client.run(30)
        launched = engine.gpu.launched.copy()
        assert KVScales() not in engine.runner.kv_pool.scales
        assert_noticed(scales_are_not_read, engine, truth, ROUNDING_TO_FP8)
        if is_hopper:
            assert_noticed(scales_of_queries_are_not_read, engine, truth, ROUNDING_TO_FP8)
    assert client.happened["tokens"] > 50
    assert launched[f"{kernel}, in a graph"] > 20 and not launched["append_paged_kv_cache"]
    assert bool(launched["attention in fp8"] > 20) == is_hopper
    assert bool(launched["quantize_queries"]) == is_hopper
    assert launched["attention, in a graph"] > 5


@pytest.mark.parametrize("ranks", [1, 2])
def test_latents_are_attended_to_by_flashinfer(ranks: int, tmp_path: Path) -> None:
    """In graphs and outside, by chunks, from the host; each rank has all latents and half the
    heads."""
    case = FAMILIES["deepseek-v3"]
    fields = case.fields | {"hidden_size": 128, "kv_lora_rank": 128, "qk_rope_head_dim": 64}
    # All experts, as rounding to bfloat16 would decide between two that are nearly equal.
    fields |= {"num_experts_per_tok": fields["n_routed_experts"], "topk_group": fields["n_group"]}
    base = Reference(
        tmp_path / "base", config_type=case.config_type, dtype=torch.bfloat16, std=0.08, **fields
    )
    with fake_engine(base.path, ranks=ranks, **SMALL) as engine:
        truth = PeftAdapters(base, tmp_path, {})
        happened = ran(engine, truth, 30)
        launched = engine.gpu.launched.copy()
        assert engine.runner.kv_pool.v[0].shape[1:] == (1, 128)
        if ranks == 1:  # another rank would fail, too
            assert_noticed(left_out(LatentCall, "plan"), engine, truth)
    assert happened["tokens"] > 50
    assert launched["latents, in a graph"] > 5 and launched["latents"] > 20
    assert not launched["attention"]


def test_weights_in_fp8_stay_so(tmp_path: Path) -> None:
    """Those of linear layers and of experts."""
    base = small_reference("qwen3-moe", tmp_path / "base", moe_intermediate_size=128)
    served = in_fp8(base.path, tmp_path / "fp8", by_row)
    with fake_engine(served, capability=(8, 9), **SMALL) as engine:
        truth = PeftAdapters(base, tmp_path, {})
        client = Client(engine.world(), truth, seed=0, tolerance=ROUNDING_TO_FP8)
        client.run(30)
        launched = engine.gpu.launched
    assert client.happened["tokens"] > 50
    assert launched["quantize, in a graph"] > 20 and launched["_scaled_mm, in a graph"] > 20
    assert launched["fused_experts with scales, in a graph"] > 20


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_answer_is_right_in_thousands_of_steps(ranks: int, truth: PeftAdapters) -> None:
    """With those of the next test 10,000."""
    happened: Counter[str] = Counter()
    with fake_engine(truth.base.path, ranks=ranks, **SETTINGS) as engine:
        for seed in range(1, 11):
            happened += ran(engine, truth, 250, seed)
    assert all(happened[event] > 10 for event in EVENTS), happened


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["gemma2", "qwen3-moe"])
def test_windows_experts_and_shared_prefixes_in_thousands_of_steps(
    name: str, tmp_path: Path
) -> None:
    assert others(name, tmp_path, 2500)["retractions"]


def others(name: str, folder: Path, steps: int, ranks: int = 1, **settings: Any) -> Counter[str]:
    """Other models than llama, without adapters."""
    base = small_reference(name, folder / "base")
    own = SMALL | {"window_ratio": 0.5} | settings
    with fake_engine(base.path, ranks=ranks, shared_bytes=20_000, **own) as engine:
        happened = ran(engine, PeftAdapters(base, folder, {}), steps)
        assert bool(engine.runner.kv_pool.windowed) == (name == "gemma2")
        assert engine.gpu.launched["attention, in a graph"] > 5
        if "num_experts_per_tok" in FAMILIES[name].fields:
            assert engine.gpu.launched["fused_experts, in a graph"] > 5
            assert not engine.gpu.launched["expert_product"]
        if steps > 1000:
            assert engine.gpu.launched["merge_state"] > 100, "rows do not attend together"
        return happened


ON_LONG = pytest.mark.long


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=ON_LONG) for name in MORE)])
def test_a_mutation_is_noticed(name: str, engine: Engine, truth: PeftAdapters) -> None:
    assert_noticed((QUICK | MORE)[name], engine, truth)
