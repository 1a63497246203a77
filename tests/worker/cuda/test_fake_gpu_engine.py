"""The whole engine on fake GPUs, which forbid what CUDA forbids: random requests, with aborts,
retraction, a host tier, grammars, adapters and two ranks, each answer as transformers and peft give
it; and each of a sheet of mutations is noticed."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pando_worker.attention.backend import KVScales
from pando_worker.attention.device_pages import DevicePages
from pando_worker.attention.flashinfer_graphs import FixedDecodes
from pando_worker.attention.flashinfer_pieces import AttentionPieces
from pando_worker.attention.staging import Staging
from pando_worker.memory.page_allocator import Pages
from pando_worker.models.lora.linear import LoraMemory, LoraTokens, PackedAdapter
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner, Padding
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.tensors import transfer
from pando_worker.tensors.transfer import HostCopy
from tests.worker.adapters.peft_adapters import PeftAdapters
from tests.worker.cuda.fake_gpu.engine import PAGE_SIZE, Engine, fake_engine
from tests.worker.cuda.fake_gpu.memory import CudaError
from tests.worker.cuda.fake_gpu.patches import on_gpu
from tests.worker.cuda.fake_gpu.requests import Client
from tests.worker.cuda.fp8_checkpoints import by_row, in_fp8
from tests.worker.model.checkpoints import Reference
from tests.worker.model.families import FAMILIES

ADAPTERS: dict[str, dict[str, Any]] = {
    "rank 8": {"r": 8, "lora_alpha": 16},
    "rank 17": {"r": 17, "lora_alpha": 5},
    "attention": {"r": 6, "target_modules": ["o_proj"]},
}
ROUNDING_TO_FP8 = 0.6  # in log-probabilities
SETTINGS: dict[str, Any] = {
    "max_total_tokens": 144,
    "context_length": 96,
    "max_running_requests": 6,
    "cuda_graph_max_batch": 4,
    "cuda_graph_max_tokens": 20,
    "chunked_prefill_size": 16,
    "host_memory_gib": 2e-4,
    "max_loras": 2,
    "lora_ranks": 64,
}


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
    with fake_engine(truth.base.path, ranks=2, **SETTINGS) as engine:
        happened = ran(engine, truth, 40)
    assert happened["tokens"] > 50 and happened["with adapters"], happened


@pytest.mark.parametrize("name", ["gemma2", "qwen3-moe"])
def test_layers_with_windows_release_pages_and_experts_are_fused(name: str, tmp_path: Path) -> None:
    assert others(name, tmp_path, 30)["tokens"] > 100


@pytest.mark.parametrize(("name", "kernel"), [("llama", "turn_heads"), ("olmo2", "store_kv")])
def test_keys_and_values_in_fp8_are_stored_by_one_kernel(
    name: str, kernel: str, tmp_path: Path
) -> None:
    """For Llama it also rotates heads. OLMo's norms over all heads do not fit it, so there another
    kernel only stores."""
    case = FAMILIES[name]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64, "num_attention_heads": 2}
    if name == "olmo2":
        fields["num_key_value_heads"] = 2
    base = Reference(
        tmp_path / "base", config_type=case.config_type, dtype=torch.bfloat16, std=0.1, **fields
    )
    plain = {key: value for key, value in SETTINGS.items() if "lora" not in key}
    with fake_engine(base.path, kv_cache_dtype="fp8_e4m3", **plain) as engine:
        truth = PeftAdapters(base, tmp_path, {})
        client = Client(engine.world(), truth, seed=0, tolerance=ROUNDING_TO_FP8)
        client.run(30)
        launched = engine.gpu.launched
        assert KVScales() not in engine.runner.kv_pool.scales
    assert client.happened["tokens"] > 50
    assert launched[f"{kernel}, in a graph"] > 20 and not launched["append_paged_kv_cache"]


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
    plain = {key: value for key, value in SETTINGS.items() if "lora" not in key}
    with fake_engine(base.path, ranks=ranks, **plain) as engine:
        happened = ran(engine, PeftAdapters(base, tmp_path, {}), 30)
        launched = engine.gpu.launched
        assert engine.runner.kv_pool.v[0].shape[1:] == (1, 128)
    assert happened["tokens"] > 50
    assert launched["latents, in a graph"] > 5 and launched["latents"] > 20
    assert not launched["attention"]


def test_weights_in_fp8_stay_so(tmp_path: Path) -> None:
    """Those of linear layers and of experts."""
    case = FAMILIES["qwen3-moe"]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64, "moe_intermediate_size": 128}
    fields["num_experts_per_tok"] = fields["num_experts"]
    base = Reference(
        tmp_path / "base", config_type=case.config_type, dtype=torch.bfloat16, std=0.08, **fields
    )
    served = in_fp8(base.path, tmp_path / "fp8", by_row)
    plain = {key: value for key, value in SETTINGS.items() if "lora" not in key}
    with fake_engine(served, capability=(8, 9), **plain) as engine:
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


def others(name: str, folder: Path, steps: int) -> Counter[str]:
    """Other models than llama, without adapters."""
    case = FAMILIES[name]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64}
    if "num_experts_per_tok" in fields:
        # All experts, as rounding to bfloat16 would decide between two that are nearly equal.
        fields["num_experts_per_tok"] = fields["num_experts"]
    base = Reference(
        folder / "base", config_type=case.config_type, dtype=torch.bfloat16, std=0.08, **fields
    )
    plain = {key: value for key, value in SETTINGS.items() if "lora" not in key}
    with fake_engine(base.path, shared_bytes=20_000, window_ratio=0.5, **plain) as engine:
        happened = ran(engine, PeftAdapters(base, folder, {}), steps)
        assert bool(engine.runner.kv_pool.windowed) == (name == "gemma2")
        assert engine.gpu.launched["attention, in a graph"] > 5
        if "num_experts_per_tok" in fields:
            assert engine.gpu.launched["fused_experts, in a graph"] > 5
            assert not engine.gpu.launched["expert_product"]
        if steps > 1000:
            assert engine.gpu.launched["merge_state"] > 100, "rows do not attend together"
        return happened


Mutate = Callable[[Engine, pytest.MonkeyPatch], None]


def left_out(of: type, name: str) -> Mutate:
    return lambda engine, patch: patch.setattr(of, name, lambda *args, **kwargs: None)


def no_waits_of(stream: str) -> Mutate:
    """A stream waits for no event."""

    def mutate(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        streams = engine.runner.host_pool.pages._streams
        assert streams is not None
        found = {"model": engine.gpu.default, "out": streams._out.stream, "in": streams._in.stream}
        patch.setattr(found[stream], "wait_event", lambda event: None)

    return mutate


def read_at_once(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostCopy, "wait", lambda copy: copy._host.numpy())


def buffers_are_free_at_once(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    streams = engine.runner.host_pool.pages._streams
    assert streams is not None
    store = streams._store

    def mutated(host: Pages, device: Pages) -> None:
        buffer = streams._out.buffers[streams._out.turn]
        free = buffer.free
        store(host, device)
        buffer.free = free

    patch.setattr(streams, "_store", mutated)


def layers_wait_for_no_load(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine.runner.kv_pool, "before_layer", None)


def not_pinned(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transfer, "pinned", lambda array, device: torch.from_numpy(array))


def plans_not_pinned(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Staging, "_staged", lambda self, arrays: torch.from_numpy(np.concatenate(arrays)))


def padding_in(page: int) -> Mutate:
    def mutate(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(engine.runner.graphs, "_padding", Padding(page, None, page))

    return mutate


def inputs_of(engine: Engine) -> GraphInputs:
    graphs = engine.runner.graphs
    assert isinstance(graphs, CudaGraphRunner)
    return graphs._inputs


def stale_numbers(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Nothing fills what graphs read, as in the mutations below."""
    for numbers in inputs_of(engine)._numbers.values():
        patch.setattr(numbers, "_on_device", numbers._on_device.clone())


def stale_adapters(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(engine)
    of = inputs._tokens
    copied = LoraTokens(of.tokens.clone(), of.slots.clone(), of.count.clone())
    patch.setattr(inputs, "_tokens", copied)


def inputs_at_once(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inputs_of(engine)._copied, "wait", lambda: None)


def stale_slots(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    graphs = engine.runner.graphs
    assert isinstance(graphs, CudaGraphRunner)
    for graph in graphs._graphs.values():
        attention = graph.attention
        assert isinstance(attention, FixedDecodes)
        arrays = attention._arrays
        patch.setattr(arrays, "_on_device", arrays._on_device.clone())


def pieces(engine: Engine) -> AttentionPieces:
    assert engine.runner.pieces is not None
    attention = engine.runner.pieces._attention
    assert isinstance(attention, AttentionPieces)
    return attention


def stale_slots_of_pieces(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    attention = pieces(engine)
    patch.setattr(attention, "_slots", {k: v.clone() for k, v in attention._slots.items()})


def padding_of_pieces(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pieces(engine), "_padding", {False: 3 * PAGE_SIZE})


def no_attention_between_pieces(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pieces(engine), "between", lambda layer, count: None)


def attention_of_one_layer(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Between all pieces."""
    attention, first = pieces(engine), engine.runner.kv_pool.layers[0]
    between = attention.between
    patch.setattr(attention, "between", lambda layer, count: between(first, count))


def stale_plan(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FixedDecodes, "plan", lambda self, batch: None)


def adapters_are_not_waited_for(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    def put(
        memory: LoraMemory,
        slot: int,
        pages: Sequence[int],
        adapter: PackedAdapter,
        rest: Callable[[], None] = lambda: None,
    ) -> None:
        with torch.cuda.stream(memory._stream):
            memory._refer(slot, pages, adapter)
            for page, numbers in zip(pages, adapter.pages, strict=False):
                memory.pages[page].copy_(numbers.pin_memory(), non_blocking=True)

    patch.setattr(LoraMemory, "put", on_gpu(engine.gpu, put))


# Some of the sheet: one for each kind of fault.
QUICK: dict[str, Mutate] = {
    "a result is read before its event": read_at_once,
    "a plan does not wait for the copies of the plan before": left_out(Staging, "wait"),
    "the model's stream waits for no load": no_waits_of("model"),
    "padding rows write a page of requests": padding_in(3),
    "padding tokens of pieces write a page of requests": padding_of_pieces,
    "no attention between pieces": no_attention_between_pieces,
    "graphs read stale tokens and positions": stale_numbers,
    "the device's page tables stay as they are": left_out(DevicePages, "apply"),
}
MORE: dict[str, Mutate] = {
    "copies of plans are not marked": left_out(Staging, "mark"),
    "stores do not wait for the model": no_waits_of("out"),
    "loads do not wait for their buffer and stores": no_waits_of("in"),
    "layers do not wait for loads": layers_wait_for_no_load,
    "a buffer counts as free while it is copied": buffers_are_free_at_once,
    "an adapter's copies are not waited for": adapters_are_not_waited_for,
    "graphs' tokens are filled while those before are copied": inputs_at_once,
    "arrays are copied from memory that is not pinned": not_pinned,
    "plans are copied from memory that is not pinned": plans_not_pinned,
    "graphs read stale tokens of adapters": stale_adapters,
    "graphs read stale slots": stale_slots,
    "graphs read a stale plan": stale_plan,
    "pieces store keys in stale slots": stale_slots_of_pieces,
    "attention of one layer between all pieces": attention_of_one_layer,
    "last tokens are not kept on the device": left_out(FutureTokens, "put"),
}
ON_LONG = pytest.mark.long


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=ON_LONG) for name in MORE)])
def test_a_mutation_is_noticed(
    name: str, engine: Engine, truth: PeftAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    (QUICK | MORE)[name](engine, monkeypatch)
    with pytest.raises((CudaError, AssertionError, IndexError)) as caught:
        ran(engine, truth, 150)
    print(name, "->", type(caught.value).__name__, str(caught.value)[:150])
