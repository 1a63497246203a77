"""The whole CUDA path on the CPU: flashinfer from its documentation, its operations, and repeated
calls instead of graphs, for whole models in bfloat16, compared with torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.device_pages import Padding
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.graphs import FlashinferGraphs
from pando_worker.attention.flashinfer.library import Library
from pando_worker.attention.kv_pool import TokenToKVPool, windowed_layers
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch
from pando_worker.cuda.ops import CudaOps, choose_fused_experts
from pando_worker.cuda.turn_heads import turn_heads
from pando_worker.models.config import read_config
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.loading.building import build_model
from pando_worker.models.loading.dummy import fill_at_random
from pando_worker.models.ops import Ops, TorchOps
from pando_worker.progress import Stage
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens
from tests.worker.cuda.flashinfer.attention_cases import with_windows
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook
from tests.worker.cuda.test_cuda_graph import repeat
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.families import FAMILIES
from tests.worker.model.paged import Pages, Row

CPU = torch.device("cpu")
PAGE_SIZE, PAGES, CONTEXT = 4, 64, 128
LIBRARY = ByTheBook()


@dataclass
class Way:
    """A model in bfloat16 with fixed weights, whose pool has a page that nobody owns."""

    directory: Path
    ops: Ops
    releases: bool = False  # whether layers with windows have their own pool

    def __post_init__(self) -> None:
        config = read_config(self.directory)
        model = build_model(config, torch.bfloat16, CPU, context_length=CONTEXT, ops=self.ops)
        assert isinstance(model, CausalLM)
        fill_at_random(model, CPU)
        self.model = model
        layers = model.attention_layers
        windowed = windowed_layers(layers, CONTEXT) if self.releases else frozenset()
        self.pool = TokenToKVPool(
            layers,
            PAGES * PAGE_SIZE,
            torch.bfloat16,
            CPU,
            windowed=windowed,
            window_slots=PAGES * PAGE_SIZE if windowed else 0,
            spare_slots=PAGE_SIZE,
        )
        self.futures = FutureTokens(8, CPU)

    def eager(self, batch: ForwardBatch, attention: AttentionBackend) -> Tensor:
        attention.plan(batch)
        ids = self.futures.resolve(batch.input_ids)
        hidden: Tensor = self.model(ids, torch.from_numpy(batch.positions), attention)
        return self.model.logits(hidden)


@pytest.mark.usefixtures("products_of_bfloat16")
@pytest.mark.parametrize(
    ("name", "releases"),
    [
        ("llama", False),
        ("qwen3", False),
        ("qwen3-moe", False),
        pytest.param("gemma2", False, marks=pytest.mark.long),
        ("gemma2", True),
        ("gpt-oss", True),
        ("deepseek-v3", False),
    ],
)
def test_a_whole_model_gives_what_torch_gives(name: str, releases: bool, tmp_path: Path) -> None:
    """Prefills, a mixed step, then decodes in graphs. With torch, layers always share one pool."""
    case = FAMILIES[name]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64}
    if name == "gpt-oss":
        # Use all experts, as rounding to bfloat16 would decide between two that are nearly equal.
        fields["num_experts_per_tok"] = fields["num_local_experts"]
    if name == "deepseek-v3":
        fields |= {"kv_lora_rank": 128, "qk_rope_head_dim": 64, "topk_group": fields["n_group"]}
        fields["num_experts_per_tok"] = fields["n_routed_experts"]
    Reference(tmp_path, config_type=case.config_type, **fields)
    fused_experts = choose_fused_experts((8, 0), torch.bfloat16)  # as on an A100
    ops = CudaOps(library=LIBRARY, fused_experts=fused_experts)
    plain, fused = Way(tmp_path, TorchOps()), Way(tmp_path, ops, releases)
    expected_by = TorchAttention(plain.pool)
    attention = FlashinferAttention(
        fused.pool,
        PAGE_SIZE,
        torch.bfloat16,
        256,
        cast(Library, LIBRARY),
        turner=turn_heads if name == "qwen3" else None,  # whose norms it has; it is slow here
    )
    captured: list[tuple[Stage, float]] = []
    graphs = CudaGraphRunner(
        fused.model,
        FlashinferGraphs(attention, 4, CONTEXT, Padding(PAGES, PAGES if releases else None)),
        fused.futures,
        GraphInputs(4, CPU, None),
        sizes=[1, 4],
        capture=repeat,
        report=lambda stage, done: captured.append((stage, done)),
    )
    assert captured == [(Stage.GRAPHS, 0.5), (Stage.GRAPHS, 1.0)]
    pages = Pages(PAGES, PAGE_SIZE)
    rows = [Row(prompt(length, seed=length)) for length in (19, 1, 7)]

    window_of = np.random.default_rng(1).permutation(PAGES).astype(np.int32)

    def check(batch: ForwardBatch, *, in_graph: bool) -> None:
        own = with_windows(batch, fused.pool.window, window_of) if releases else batch
        with torch.inference_mode():
            got = graphs.run(own)
            assert (got is not None) == in_graph
            got = fused.eager(own, attention) if got is None else got
        expected = plain.eager(batch, expected_by)
        torch.testing.assert_close(got, expected, atol=0.1 * float(expected.std()), rtol=0.05)

    check(pages.batch(rows[:2], [12, 1]), in_graph=False)
    rows[1].tokens.append(3)
    check(pages.batch([rows[1], rows[0], rows[2]], [1, 7, 7]), in_graph=False)
    for step in range(4):
        for row in rows:
            row.tokens.append(5 + step)
        check(pages.batch(rows, [1, 1, 1]), in_graph=True)
