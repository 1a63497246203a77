"""Faults to put into the engine, each of which must be noticed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import KVScales
from pando_worker.attention.device_pages import DevicePages
from pando_worker.attention.flashinfer.fp8_queries import QueryQuantizer
from pando_worker.attention.flashinfer.graphs import FixedDecodes
from pando_worker.attention.flashinfer.pieces import AttentionPieces
from pando_worker.attention.staging import Staging
from pando_worker.batch import ForwardBatch, PageChanges, SamplingBatch
from pando_worker.memory.page_allocator import Pages
from pando_worker.models.lora.linear import LoraMemory, LoraTokens, PackedAdapter
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling import sampler
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.tensors import transfer
from pando_worker.tensors.transfer import HostCopy
from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.engine import Engine
from tests.worker.cuda.fake_gpu.engine_world import PAGE_SIZE
from tests.worker.cuda.fake_gpu.patches import on_gpu

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


def decodes(engine: Engine) -> list[FixedDecodes]:
    graphs = engine.runner.graphs
    assert isinstance(graphs, CudaGraphRunner)
    found = [graph.attention for graph in graphs._graphs.values()]
    return [attention for attention in found if isinstance(attention, FixedDecodes)]


def padding_in(page: int) -> Mutate:
    def mutate(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        for attention in decodes(engine):
            of_padding = attention._of_padding.copy()
            of_padding[2], of_padding[3:] = page, page * PAGE_SIZE
            patch.setattr(attention, "_of_padding", of_padding)

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
    fill = FixedDecodes._fill

    def mutated(attention: FixedDecodes, batch: ForwardBatch) -> None:
        slots = attention._own[3:].copy()
        fill(attention, batch)
        attention._own[3:] = slots

    patch.setattr(FixedDecodes, "_fill", mutated)


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


def no_kernel(name: str) -> Mutate:
    """A kernel is missing in all graphs and pieces."""

    def mutate(engine: Engine, patch: pytest.MonkeyPatch) -> None:
        graphs, pieces = engine.runner.graphs, engine.runner.pieces
        assert isinstance(graphs, CudaGraphRunner) and pieces is not None
        replays: list[Any] = [graph.replay for graph in graphs._graphs.values()]
        replays += [replay for some in pieces._graphs.values() for replay in some.replays]
        for graph in [replay.__self__ for replay in replays]:
            kept = [launch for launch in graph.launches if launch.what != name]
            patch.setattr(graph, "launches", kept)

    return mutate


def limits_of_another_step(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    """Those with which tokens are drawn."""
    made, kept = sampler._limits, dict[int, Any]()

    def limits(params: SamplingBatch) -> Any:
        rows = len(params.temperature)
        kept[rows], old = made(params), kept.get(rows)
        return kept[rows] if old is None else old

    patch.setattr(sampler, "_limits", limits)


def scales_are_not_read(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    pool = engine.runner.kv_pool
    patch.setattr(pool, "scales", [KVScales()] * len(pool.scales))


def scales_of_queries_are_not_read(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    def unscaled(quantizer: QueryQuantizer, q: Tensor) -> tuple[Tensor, Tensor]:
        values, scales = quantizer(q)
        return values, scales.fill_(1.0)

    attention: Any = engine.runner.attention
    for calls in attention._calls.values():
        for call in calls.fa3.values():
            patch.setattr(call, "_quantizer", partial(unscaled, call._quantizer))


def tables_of_another_rank_stay(engine: Engine, patch: pytest.MonkeyPatch) -> None:
    apply = DevicePages.apply

    def on_rank_0(tables: DevicePages, changes: PageChanges, staging: Staging) -> None:
        if FakeGpu.of_thread().index == 0:
            apply(tables, changes, staging)

    patch.setattr(DevicePages, "apply", on_rank_0)


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
    "heads are not turned": no_kernel("turn_heads"),
    "tokens are drawn with the limits of another step": limits_of_another_step,
}
