"""What launches kernels beside torch: flashinfer, Triton's kernels, sums over ranks.

Each is a launch with the memory that it uses; what it computes is that of the tests for the CPU.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pando_worker.adapters.layout import pieces
from pando_worker.models.lora.linear import LoraMemory, LoraSite, LoraTokens
from pando_worker.models.parallel import ParallelGroup
from tests.worker.cuda.fake_gpu.device import FakeGpu, Range
from tests.worker.cuda.fake_gpu.memory import CudaError
from tests.worker.cuda.fake_gpu.tensors import raw, tensors_in, used
from tests.worker.cuda.flashinfer import by_the_book as book
from tests.worker.cuda.flashinfer import comm_by_the_book as comm_book
from tests.worker.cuda.flashinfer import mla_by_the_book as mla_book
from tests.worker.cuda.flashinfer import ops_by_the_book as ops_book


def kernel(
    what: str,
    run: Callable[[], object],
    reads: Sequence[Tensor],
    writes: Sequence[Tensor],
    by_values: Callable[[], list[Range]] | None = None,
) -> None:
    FakeGpu.of_thread().launch(
        what, run, [*used(reads, writes=False), *used(writes, writes=True)], by_values
    )


def _making(function: Any, width: int = 1) -> Any:
    """A kernel whose results are like its first arguments, or narrower by `width`."""
    inner = function.__wrapped__  # without the check of its signature, which other tests make

    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0]
        out = torch.empty(
            (*first.shape[:-1], first.shape[-1] // width), dtype=first.dtype, device=first.device
        )
        given = [x for x in args if isinstance(x, Tensor)]
        target, plain = raw(out), [raw(x) if isinstance(x, Tensor) else x for x in args]
        kernel(function.__name__, lambda: target.copy_(inner(*plain, **kwargs)), given, [out])
        return out

    return staticmethod(call)


def _changing(function: Any, *changed: int) -> Any:
    """A kernel that changes the arguments with these indices."""
    inner = function.__wrapped__

    def call(*args: Any, **kwargs: Any) -> None:
        plain = [
            tuple(map(raw, x)) if isinstance(x, tuple) else raw(x) if isinstance(x, Tensor) else x
            for x in args
        ]
        writes = list(tensors_in([args[index] for index in changed]))
        reads = [x for x in args if isinstance(x, Tensor)]
        kernel(function.__name__, lambda: inner(*plain, **kwargs), reads, writes)

    return staticmethod(call)


def _append_paged_kv_cache(
    k: Tensor,
    v: Tensor,
    rows: Tensor,
    positions: Tensor,
    paged: tuple[Tensor, Tensor],
    pages: Tensor,
    indptr: Tensor,
    last: Tensor,
    kv_layout: str,
) -> None:
    """Writes no more of the pool than the pages of its tokens, each of which has a page alone."""
    given = (k, v, rows, positions, pages, indptr, last)
    plain = [raw(x) for x in given]
    plain_paged = raw(paged[0]), raw(paged[1])

    def run() -> None:
        inner: Any = book.append_paged_kv_cache
        inner.__wrapped__(*plain[:4], plain_paged, *plain[4:], kv_layout)

    def by_values() -> list[Range]:
        written = [part[page] for page in set(plain[4].tolist()) for part in paged]
        return list(used(written, writes=True))

    kernel("append_paged_kv_cache", run, given, [], by_values)


def _merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    v, s = torch.empty_like(v_a), torch.empty_like(s_a)
    plain = [raw(x) for x in (v_a, s_a, v_b, s_b)]
    targets = raw(v), raw(s)

    def run() -> None:
        for target, values in zip(targets, book.merge_state(*plain), strict=True):
            target.copy_(values)

    kernel("merge_state", run, [v_a, s_a, v_b, s_b], [v, s])
    return v, s


def _rotated(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor
) -> tuple[Tensor, Tensor]:
    q, k = torch.empty_like(query), torch.empty_like(key)
    plain = raw(positions), raw(query), raw(key), head_size, raw(cos_sin_cache)
    targets = raw(q), raw(k)

    def run() -> None:
        for target, values in zip(
            targets, ops_book.apply_rope_with_cos_sin_cache(*plain), strict=True
        ):
            target.copy_(values)

    kernel("apply_rope", run, [positions, query, key, cos_sin_cache], [q, k])
    return q, k


class OnDevice:
    """The parts of a wrapper that copy a plan to the device, and launch what was planned.

    flashinfer plans into pinned memory of the wrapper and copies that to the device, where kernels
    read it; it keeps the pages, which are on the device already.
    """

    _is_fixed: bool
    _qo: Any
    _indptr: Any
    _indices: Any
    _last: Any
    _int_workspace: Tensor
    _workspace: Tensor
    compute: Any

    def reset_workspace_buffer(
        self, float_workspace_buffer: Tensor, int_workspace_buffer: Tensor
    ) -> None:
        super().reset_workspace_buffer(  # type: ignore[misc]
            float_workspace_buffer, int_workspace_buffer
        )
        self._planned_host = torch.empty(
            len(int_workspace_buffer), dtype=torch.uint8, pin_memory=True
        )

    def _keep(self, qo: Tensor, indptr: Tensor, indices: Tensor, last: Tensor) -> None:
        arrays = [raw(array) for array in (qo, indptr, last)]
        planned = torch.cat([torch.tensor([len(last)], dtype=torch.int32), *arrays])
        octets = planned.nbytes
        self._planned_host[:octets].copy_(planned.view(torch.uint8))
        self._int_workspace[:octets].copy_(self._planned_host[:octets], non_blocking=True)
        if not self._is_fixed:
            device = indices.device
            self._qo, self._indptr, self._last = (
                array.to(device, non_blocking=True) for array in (qo, indptr, last)
            )
            self._indices = indices
            return
        assert len(indices) <= len(self._indices), "more pages than there is memory for"
        self._qo.copy_(qo, non_blocking=True)
        self._indptr.copy_(indptr, non_blocking=True)
        self._last.copy_(last, non_blocking=True)
        self._indices[: len(indices)].copy_(indices, non_blocking=True)

    def _attend(
        self,
        q: Tensor,
        paged: tuple[Tensor, Tensor],
        out: Tensor | None,
        lse: Tensor | None,
        sinks: Tensor | None,
        scale: float,
        v_scale: float | None,
        q_scales: Tensor | None = None,
    ) -> Tensor:
        self._check_run(q, paged)  # type: ignore[attr-defined]
        assert out is not None and out.is_contiguous()
        arrays = self._qo, self._indptr, self._indices, self._last
        plain = tuple(map(raw, arrays))
        planned = raw(self._int_workspace).view(torch.int32)
        plain_q, plain_out = raw(q), raw(out)
        plain_paged = raw(paged[0]), raw(paged[1])
        plain_lse = None if lse is None else raw(lse)
        plain_sinks = None if sinks is None else raw(sinks)
        plain_scales = None if q_scales is None else raw(q_scales)

        def run() -> None:
            rows = int(planned[0])
            qo, indptr, last = torch.split(planned[1 : 3 + 3 * rows], [rows + 1, rows + 1, rows])
            for there, own in zip((plain[0], plain[1], plain[3]), (qo, indptr, last), strict=True):
                if not torch.equal(there[: len(own)], own):
                    raise CudaError("attention runs with the plan of another batch")
            self.compute(
                (qo, indptr, plain[2], last),
                plain_q,
                plain_paged,
                plain_out,
                plain_lse,
                plain_sinks,
                scale,
                plain_scales,
            )

        reads = [q, *paged, *arrays, self._int_workspace]
        reads += [each for each in (sinks, q_scales) if each is not None]
        writes = [out, self._workspace, *([] if lse is None else [lse])]
        kernel("attention" if q_scales is None else "attention in fp8", run, reads, writes)
        if v_scale is not None:
            out *= v_scale
        return out


class Prefill(OnDevice, book.Prefill):
    pass


class SinkPrefill(OnDevice, book.SinkPrefill):
    pass


class Decode(OnDevice, book.Decode):
    pass


class Latents(mla_book.Latents):
    """What it is planned with is copied to the device in the order of launches."""

    _buffers: Any

    def _keep(self, *arrays: Tensor) -> None:
        if not self._is_fixed:
            device = self._workspace.device
            self._buffers = [array.to(device, non_blocking=True) for array in arrays]
            return
        for index, (buffer, array) in enumerate(zip(self._buffers, arrays, strict=True)):
            assert index == 2 or buffer.shape == array.shape
            assert len(array) <= len(buffer), "more pages than there is memory for"
            buffer[: len(array)].copy_(array, non_blocking=True)

    def _attend(
        self, query: tuple[Tensor, Tensor], kv_cache: tuple[Tensor, Tensor], out: Tensor
    ) -> None:
        arrays: Any = tuple(map(raw, self._buffers))
        plain: Any = tuple(map(raw, query)), tuple(map(raw, kv_cache)), raw(out)

        def run() -> None:
            self.compute(arrays, *plain)

        kernel("latents", run, [*query, *kv_cache, *self._buffers], [out, self._workspace])


class Comm:
    """flashinfer.comm on a fake GPU."""

    AllReduceFusionPattern = comm_book.AllReduceFusionPattern
    create_allreduce_fusion_workspace = staticmethod(comm_book.create_allreduce_fusion_workspace)

    @staticmethod
    def allreduce_fusion(
        *,
        input: Tensor,
        workspace: comm_book.Workspace,
        pattern: int,
        residual_in: Tensor,
        residual_out: Tensor,
        norm_out: Tensor,
        rms_gamma: Tensor,
        rms_eps: float,
        fp32_acc: bool,
        weight_bias: float,
    ) -> None:
        given = (residual_in, rms_gamma)
        tensors = (input, residual_in, residual_out, norm_out, rms_gamma)
        x, residual, total, normed, weight = map(raw, tensors)
        comm_book.check(x, workspace, pattern, residual, total, normed, weight)

        def run(parts: list[Tensor]) -> None:
            comm_book.write_sum(parts, residual, weight, rms_eps, weight_bias, total, normed)

        workspace.group.sum_norm(input, list(given), [residual_out, norm_out], run)


class Library:
    """flashinfer on a fake GPU."""

    Prefill, SinkPrefill, Decode = Prefill, SinkPrefill, Decode
    Latents = Latents
    csr = staticmethod(mla_book.csr)
    append_paged_kv_cache = staticmethod(_append_paged_kv_cache)
    merge_state = staticmethod(_merge_state)
    rmsnorm = _making(ops_book.rmsnorm)
    gemma_rmsnorm = _making(ops_book.gemma_rmsnorm)
    fused_add_rmsnorm = _changing(ops_book.fused_add_rmsnorm, 0, 1)
    gemma_fused_add_rmsnorm = _changing(ops_book.gemma_fused_add_rmsnorm, 0, 1)
    silu_and_mul = _making(ops_book.silu_and_mul, 2)
    gelu_tanh_and_mul = _making(ops_book.gelu_tanh_and_mul, 2)
    apply_rope_with_cos_sin_cache = staticmethod(_rotated)
    apply_rope_with_cos_sin_cache_inplace = _changing(
        ops_book.apply_rope_with_cos_sin_cache_inplace, 1, 2
    )
    top_p_renorm_probs = _making(ops_book.top_p_renorm_probs)


def add_lora(y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
    """As `pando_worker.cuda.lora.add_lora`: slots and places are read on the device."""
    memory = site.memory
    places = [memory.slot_pages, memory.ranks, memory.scales, memory.starts]
    slot_pages, ranks, scales, starts = map(raw, places)
    pages = raw(memory.pages)
    tokens, slots, count = raw(step.tokens), raw(step.slots), raw(step.count)
    plain_y, plain_x = raw(y), raw(x)
    numbers = range(site.first, site.first + len(site.sections))

    def matrix(slot: int, start: int, rows: int, columns: int) -> Tensor:
        parts = [
            pages[int(slot_pages[slot, piece.page])][piece.place :][: piece.rows * columns]
            for piece in pieces(start, rows, columns, memory.page_numbers)
        ]
        return torch.cat(parts).view(rows, columns).float()

    def run() -> None:
        for token, slot in zip(tokens[: int(count)].tolist(), slots.tolist(), strict=False):
            for number, section in zip(numbers, site.sections, strict=True):
                if not (rank := int(ranks[slot, number])):
                    continue
                a_start, b_start = starts[slot, number].tolist()
                a = matrix(slot, a_start, rank, section.depth)
                b = matrix(slot, b_start, rank, section.width)
                h = a @ plain_x[token].float() * scales[slot, number]
                plain_y[token, section.first_output : section.first_output + section.width] += (
                    h @ b
                ).to(plain_y.dtype)

    def by_values() -> list[Range]:
        """Other threads fill other slots and pages meanwhile."""
        found = []
        for slot in set(slots[: int(count)].tolist()):
            found += used([place[slot] for place in places], writes=False)
            for page in set(slot_pages[slot].tolist()):
                if _is_held(memory, slot, page):
                    found += used([memory.pages[page]], writes=False)
        return found

    kernel("add_lora", run, [step.tokens, step.slots, step.count, x], [y], by_values)


def _is_held(memory: LoraMemory, slot: int, page: int) -> bool:
    return page in memory._held_pages[slot]


class Meeting:
    """Where ranks in threads of one process meet."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks)
        self._things: list[Any] = [None] * ranks

    def exchange(self, rank: int, thing: Any) -> list[Any]:
        self._things[rank] = thing
        self._barrier.wait(120)
        things = list(self._things)
        self._barrier.wait(120)
        return things

    def leave(self) -> None:
        """Let all others fail."""
        self._barrier.abort()


class Ranks(ParallelGroup):
    """A group whose ranks are threads of one process, each with a fake GPU."""

    __slots__ = ("_meeting",)
    _meeting: Meeting

    def __init__(self, rank: int, size: int, meeting: Meeting) -> None:
        super().__init__(rank, size, self)  # type: ignore[arg-type]
        object.__setattr__(self, "_meeting", meeting)  # the base is frozen

    def all_reduce(self, x: Tensor) -> Tensor:
        plain = raw(x)
        self._launch(
            "all_reduce",
            [x],
            [x],
            lambda parts: plain.copy_(torch.stack(parts).sum(0)),
            behind=range(self.size),
        )
        return x

    def to_first(self, x: Tensor) -> Tensor:
        width = self.size * x.shape[1] if self.rank == 0 else 0
        out = torch.empty(len(x), width, dtype=x.dtype, device=x.device)
        target, all_ranks = raw(out), range(self.size)

        def gather(parts: list[Tensor]) -> None:
            if self.rank == 0:
                target.copy_(torch.cat(parts, 1))

        self._launch("gather", [x], [out], gather, behind=() if self.rank else all_ranks)
        return out

    def broadcast(self, x: Tensor) -> Tensor:
        plain = raw(x)
        self._launch("broadcast", [x], [x], lambda parts: plain.copy_(parts[0]), behind=(0,))
        return x

    def sum_norm(
        self, x: Tensor, given: list[Tensor], made: list[Tensor], run: Callable[..., object]
    ) -> None:
        """Called by flashinfer's function, which is given the group.

        Args:
            run: makes the results of the ranks' x
        """
        self._launch("allreduce_fusion", [x, *given], made, run, behind=range(self.size))

    def _launch(
        self,
        what: str,
        given: Sequence[Tensor],
        made: Sequence[Tensor],
        run: Callable[[list[Tensor]], object],
        behind: Sequence[int],
    ) -> None:
        """It ends on this rank when the ranks `behind` have got so far.

        Args:
            given: the first is what this rank gives the others
        """
        plain = raw(given[0])

        def meet() -> None:
            stream = FakeGpu.of_thread().stream
            met = self._meeting.exchange(self.rank, (what, plain.clone(), dict(stream.seen)))
            if len({name for name, _, _ in met}) > 1:
                raise CudaError("ranks do not launch the same: they would wait forever")
            for rank in behind:
                stream.after(met[rank][2])
            run([part for _, part, _ in met])

        kernel(what, meet, given, made)

    def gather(self, thing: Any) -> list[Any]:
        things: list[Any] = self._meeting.exchange(self.rank, thing)
        return things
