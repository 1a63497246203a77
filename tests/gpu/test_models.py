"""Whole models on the GPU: flashinfer with CUDA graphs and torch, both compared with transformers
in float32, on tiny random checkpoints of every family in bfloat16."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.families import FAMILIES
from tests.worker.model.paged import Paged, Row
from tests.worker.scheduler.world import World

# Head dimensions that flashinfer has kernels for.
WIDER: dict[str, Any] = {"hidden_size": 256, "head_dim": 64}
WIDER_LATENTS: dict[str, Any] = {"kv_lora_rank": 128, "qk_rope_head_dim": 64}
STD = 0.08  # of weights; with the usual 0.3, layers of this width multiply rounding errors
PROMPTS = [prompt(length, seed=length) for length in (1, 9, 40, 2, 17)]
STEPS = 6
WAYS: dict[str, dict[str, Any]] = {
    "graphs": {"cuda_graph_max_batch": 4, "cuda_graph_max_tokens": 64},  # more run without
    "pieces": {"cuda_graph_max_batch": 0, "cuda_graph_max_tokens": 128},
    "no graphs": {"cuda_graph_max_batch": 0, "cuda_graph_max_tokens": 0},
    "torch": {"attention_backend": "torch"},
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    case = FAMILIES[request.param]
    fields = case.fields | WIDER
    if "kv_lora_rank" in fields:
        fields |= WIDER_LATENTS
    if "rope_parameters" in fields and "short_factor" in fields["rope_parameters"]:
        pytest.skip("its factors are for heads of another size")
    return Reference(
        tmp_path_factory.mktemp("family"),
        config_type=case.config_type,
        dtype=torch.bfloat16,
        context_length=case.context_length,
        at_least=case.at_least,
        std=STD,
        **fields,
    )


def paged(family: Reference, way: str, **settings: Any) -> Paged:
    return Paged(
        family.path,
        page_size=16,
        device="cuda",
        context_length=family.context_length,
        **WAYS[way],
        **settings,
    )


def worst_error(model: Paged, family: Reference) -> float:
    """The largest error of prefills and decodes, of all rows and of fewer, against float32."""
    rows = [Row(list(tokens)) for tokens in PROMPTS]
    worst = 0.0

    def check(rows: list[Row]) -> None:
        nonlocal worst
        expected = torch.stack([family.logits(row.tokens) for row in rows])
        logits = model.logits(rows).cpu()
        assert logits.isfinite().all()
        worst = max(worst, float((logits - expected).abs().max() / expected.std()))

    check(rows)
    for step in range(STEPS):
        some = rows[: (5, 4, 3, 1, 2, 5)[step]]
        for row in some:
            row.tokens.append(11 + step)
        check(some)
    return worst


def test_logits_are_as_close_to_transformers_as_torchs(family: Reference) -> None:
    errors = {way: worst_error(paged(family, way), family) for way in WAYS}
    print(errors)
    for way in ("graphs", "pieces", "no graphs"):
        assert errors[way] <= 2 * errors["torch"] + 0.02, errors


def test_flashinfer_and_graphs_are_what_runs(family: Reference) -> None:
    runner = paged(family, "graphs").runner
    assert isinstance(runner.attention, FlashinferAttention)
    assert isinstance(runner.graphs, CudaGraphRunner)
    assert runner.graphs.sizes == [1, 2, 4]
    assert runner.pieces is not None and runner.pieces.sizes == [16, 32, 48, 64]


def test_keys_and_values_in_fp8_stay_close(family: Reference) -> None:
    error = worst_error(paged(family, "graphs", kv_cache_dtype="fp8_e4m3"), family)
    plain = worst_error(paged(family, "torch", kv_cache_dtype="fp8_e4m3"), family)
    assert error <= 2 * plain + 0.05


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_the_engines_greedy_tokens_are_the_best_ones(
    family: Reference, way: str, overlap: bool
) -> None:
    """Each token, given the previous ones, is the best by float32 up to rounding: in mixed batches,
    with chunks, cache hits, tokens that are unknown when their step is launched, and pages released
    behind windows."""
    model = paged(family, way, max_running_requests=8, chunked_prefill_size=32)
    world = World(
        page_size=16,
        runner=model.runner,
        pools=model.runner.pools,
        overlap_schedule=overlap,
        chunked_prefill_size=32,
    )
    rounding = worst_error(paged(family, "torch"), family)
    shared = prompt(40, seed=99)
    prompts = {
        f"r{index}": shared[: 16 * (index % 3)] + tokens for index, tokens in enumerate(PROMPTS)
    }
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=8)
    world.run()
    for rid, tokens in prompts.items():
        assert_best(family.logits, tokens, world.tokens[rid], 2 * rounding + 0.05)


def assert_best(
    logits: Callable[[list[int]], Tensor], before: list[int], tokens: list[int], rounding: float
) -> None:
    assert len(tokens) == 8
    for index, token in enumerate(tokens):
        expected = logits(before + tokens[:index])
        lacking = float((expected.max() - expected[token]) / expected.std())
        assert lacking <= 2 * rounding, (index, token, lacking)


def test_every_page_size_gives_the_same(tmp_path: Path) -> None:
    reference = Reference(tmp_path, dtype=torch.bfloat16, std=STD, **WIDER)
    errors = []
    for page_size in (1, 16, 64):
        model = Paged(tmp_path, page_size=page_size, device="cuda", **WAYS["graphs"])
        errors.append(worst_error(model, reference))
    assert max(errors) <= 2 * min(errors) + 0.02
