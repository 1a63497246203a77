"""The Triton kernels of adapters: in the interpreter against torch, and compiled for each kind of
GPU, which needs no GPU."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.cuda.lora import add_lora
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.lora import linear
from pando_worker.models.lora.linear import LoraMemory
from pando_worker.runner.adapters.loader import AdapterLoader
from pando_worker.runner.adapters.pace import Pace
from pando_worker.runner.adapters.sites import attach, layout_of
from pando_worker.runner.adapters.step import lora_tokens
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens
from tests.examples import examples
from tests.worker.adapters.batches import with_adapters
from tests.worker.adapters.peft_adapters import BASE, PeftAdapters
from tests.worker.adapters.random_adapters import draw
from tests.worker.cuda.test_cuda_graph import PADDING, PAGE_SIZE, SLOTS, Fixed, repeat
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import CPU, BareModel, Row

DTYPES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
NAMES = ["rank 8", "rank 20"]

in_interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="needs the interpreter")


@in_interpreter
@pytest.mark.parametrize("dtype", list(DTYPES), ids=str)
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_the_kernels_add_what_torch_adds(dtype: torch.dtype, data: st.DataObject) -> None:
    drawn = draw(data, dtype, of_x=dtype)
    expected, got = drawn.y.float(), drawn.y.clone()
    linear.add_lora(expected, drawn.x.float(), drawn.site, drawn.step)
    add_lora(got, drawn.x, drawn.site, replace(drawn.step, runs=()))
    torch.testing.assert_close(got.float(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])
    assert torch.equal(got[drawn.slots < 0], drawn.y[drawn.slots < 0])


def test_graphs_of_steps_with_adapters_serve_any(tmp_path: Path) -> None:
    """One graph for the base alone and one for any adapters; slots change from step to step, and
    are loaded anew after the capture."""
    folder = tmp_path
    adapters = PeftAdapters(
        Reference(folder / "base"), folder, {"rank 8": {"r": 8}, "rank 20": {"r": 20}}
    )
    bare = BareModel(adapters.base.path, PAGE_SIZE, SLOTS)
    assert isinstance(bare.model, CausalLM)
    memory = LoraMemory(
        layout_of(bare.model), slots=2, pages=6, most_rank=32, dtype=torch.float32, device=CPU
    )
    attach(bare.model, memory)
    bare.pages._free = [page for page in bare.pages._free if page != PADDING.page]
    graphs = CudaGraphRunner(
        bare.model,
        Fixed(TorchAttention(bare.pool)),
        FutureTokens(16, CPU),
        GraphInputs(4, CPU, memory),
        sizes=[2, 4],
        capture=repeat,
    )
    loader = AdapterLoader(
        memory, [memory.layout], host_bytes=2**24, model_dir=None, pace=Pace(shares_cores=False)
    )
    for held in (NAMES, NAMES[::-1]):
        free = iter(range(6))
        for slot, name in enumerate(held):
            info = loader.check(str(adapters.paths[name])).result()
            loader.load(slot, [next(free) for _ in range(info.pages)], info).result()
        for slots in ([0, -1, 1], [1, 1], [-1, -1, -1], [-1, 0, 0, 1]):
            names = [BASE if slot < 0 else held[slot] for slot in slots]
            _decode(bare, memory, graphs, slots, names, adapters)


def _decode(
    bare: BareModel,
    memory: LoraMemory,
    graphs: CudaGraphRunner,
    slots: list[int],
    names: list[str],
    adapters: PeftAdapters,
) -> None:
    """Prefill a prompt for each slot, and decode two tokens in graphs."""
    rows = [Row(prompt(5 + index, seed=index)) for index in range(len(slots))]
    batch = bare.pages.batch(rows, [row.pending for row in rows])
    memory.step = lora_tokens(with_adapters(batch, slots), memory)
    attention = TorchAttention(bare.pool)
    attention.plan(batch)
    bare.model(*map(torch.from_numpy, (batch.input_ids, batch.positions)), attention)
    for token in (3, 7):
        for row in rows:
            row.tokens.append(token)
        batch = bare.pages.batch(rows, [1] * len(rows))
        memory.step = lora_tokens(with_adapters(batch, slots), memory)
        with torch.inference_mode():
            logits = graphs.run(batch)
        assert logits is not None
        expected = [
            adapters.all_logits(name, row.tokens)[-1] for name, row in zip(names, rows, strict=True)
        ]
        torch.testing.assert_close(logits, torch.stack(expected), atol=3e-4, rtol=3e-4)


@pytest.mark.parametrize("capability", [pytest.param(80, marks=pytest.mark.long), 90])
def test_the_kernels_compile_for_a_gpu(capability: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.worker.cuda.kernels.compile_lora", str(capability)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
