"""Tapes: the calls of a decode step with a given number of rows, recorded once and replayed.

A step of a small model is mostly Python: modules, views, new tensors. Its kernels and their shapes
depend only on the number of rows, so a tape keeps the calls together with the tensors that they
were made with. A later step writes its tokens to the tape's inputs and makes the calls again. This
is the CPU's equivalent of a CUDA graph. Kernels are recorded as they are called, and torch's
operators by a dispatch mode, so it works for any model's code.

Steps with adapters have tapes of their own. Their kernels read which tokens have which adapter, so
a tape does not depend on that.

A tape is used only after it has reproduced the model's output for other tokens.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pando_worker.attention.backend import AttentionBackend, page_numbers
from pando_worker.batch import ForwardBatch
from pando_worker.cpu.attention import CpuAttention, PlannedSources
from pando_worker.cpu.kernels import Call
from pando_worker.models.lora.linear import LoraMemory, LoraTokens
from pando_worker.runner.sampling.future_tokens import FutureTokens

log = logging.getLogger("pando.worker.cpu")

MOST_ROWS = 64  # above this, Python is a small part of a step
MOST_BYTES = 128 * 2**20  # of all tapes' tensors; models that need more would gain nothing

# They allocate memory without values, so they need not be repeated.
UNWRITTEN = (torch.ops.aten.empty, torch.ops.aten.empty_like)

Model = Callable[[Tensor, Tensor, AttentionBackend], Tensor]


class NotRecordableError(Exception):
    """The step does something that depends on values or that a tape cannot repeat."""


@dataclass(slots=True)
class Tape:
    input_ids: Tensor  # [rows]
    positions: Tensor  # [rows]
    lengths: Tensor  # int32 [rows]
    # For each kind of layers: the pages, int32 [rows, most pages of a request], and the slots of
    # new tokens, [rows]; see `page_numbers`.
    numbers: dict[bool, tuple[Tensor, Tensor]]
    logits: Tensor  # float32 [rows, vocab_size], the output
    lora: LoraTokens | None = None  # of a step with adapters; n is the number of rows
    sources: PlannedSources | None = None  # of an encoder-decoder
    calls: list[Call] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)  # tensors whose memory the calls use
    nbytes: int = 0  # of memory that only this tape uses

    def load(self, batch: ForwardBatch, input_ids: Tensor, lora: LoraTokens | None) -> None:
        self.input_ids.copy_(input_ids)
        self.positions.copy_(torch.from_numpy(batch.positions))
        self.lengths.copy_(torch.from_numpy(batch.seq_lens))
        for kind, (pages, out_slots) in self.numbers.items():
            table, slots = page_numbers(batch, kind)
            pages[:, : table.shape[1]].copy_(torch.from_numpy(table))
            out_slots.copy_(torch.from_numpy(slots))
        if self.sources is not None and batch.sources is not None:
            table = batch.sources.page_table
            self.sources.pages[:, : table.shape[1]].copy_(torch.from_numpy(table))
            self.sources.lengths.copy_(torch.from_numpy(batch.sources.lengths))
        if self.lora is not None and lora is not None:
            self.lora.tokens[: len(lora.tokens)].copy_(lora.tokens)
            self.lora.slots[: len(lora.slots)].copy_(lora.slots)
            self.lora.count.copy_(lora.count)

    def play(self) -> Tensor:
        for function, args in self.calls:
            function(*args)
        return self.logits


class DecodeTapes:
    """Runs batches that it has tapes for, and records a tape when a number of rows recurs.

    Args:
        model: maps input ids, positions and a planned backend to logits
        most_pages: largest number of pages of one request
        lora: of the model, if it has adapters
        source_pages: largest number of pages of a source; 0 without
    """

    def __init__(
        self,
        model: Model,
        attention: CpuAttention,
        futures: FutureTokens,
        most_pages: int,
        lora: LoraMemory | None = None,
        source_pages: int = 0,
    ) -> None:
        self._model = model
        self._attention = attention
        self._futures = futures
        self._most_pages = most_pages
        self._lora = lora
        self._source_pages = source_pages
        self._tapes: dict[_KindOfStep, Tape] = {}
        self._seen: set[_KindOfStep] = set()
        self._refused: set[_KindOfStep] = set()
        self._recordable = True

    @torch.inference_mode()
    def run(self, batch: ForwardBatch) -> Tensor | None:
        """Logits of all rows, float32 [rows, vocab_size], valid until the next step; None without a
        tape."""
        rows = len(batch.extend_lens)
        if rows > MOST_ROWS or rows != len(batch.input_ids):
            return None
        kind = _KindOfStep(rows, with_adapters=self._step is not None)
        if tape := self._tapes.get(kind):
            tape.load(batch, self._futures.resolve(batch.input_ids), self._step)
            return tape.play()
        if kind in self._seen and kind not in self._refused and self._recordable:
            return self._make(batch, kind)
        self._seen.add(kind)
        return None

    @property
    def _step(self) -> LoraTokens | None:
        """The tokens with adapters of the step that runs."""
        return None if self._lora is None else self._lora.step

    def _make(self, batch: ForwardBatch, kind: "_KindOfStep") -> Tensor | None:
        """Record this step."""
        ids = self._futures.resolve(batch.input_ids)
        try:
            tape = self._record(batch, ids, kind)
        except NotRecordableError as reason:
            self._recordable = False
            log.info("decode steps of this model are not recorded: %s", reason)
            return None
        used = sum(other.nbytes for other in self._tapes.values()) + tape.nbytes
        if used > MOST_BYTES:
            self._refused.add(kind)
            log.info("steps of %s are not recorded: recorded ones take enough memory", kind)
            return None
        if not self._proven(tape, batch, ids):
            self._refused.add(kind)
            log.warning("a recorded step of %s differs from the model: not used", kind)
            return None
        self._tapes[kind] = tape
        tape.load(batch, ids, self._step)
        return tape.play()

    def _record(self, batch: ForwardBatch, ids: Tensor, kind: "_KindOfStep") -> Tape:
        rows, step = kind.rows, self._step
        tape = Tape(
            input_ids=ids.clone(),
            positions=torch.empty(rows, dtype=torch.int64),
            lengths=torch.empty(rows, dtype=torch.int32),
            numbers={kind: self._new_numbers(rows) for kind in self._attention.kinds},
            logits=ids,  # replaced below
            lora=_new_tokens(rows) if kind.with_adapters else None,
            sources=self._new_sources(rows),
        )
        tape.load(batch, ids, step)
        extends = torch.ones(rows, dtype=torch.int32)
        tape.kept.append(extends)
        self._attention.plan_on(tape.numbers, tape.lengths, extends, batch.page_size, tape.sources)
        self._attention.kernels.record(tape.calls, self._attention.threads)
        if self._lora is not None:
            self._lora.step = tape.lora
        try:
            with _Recorder(tape):
                tape.logits = self._model(tape.input_ids, tape.positions, self._attention)
        finally:
            self._attention.kernels.stop_recording()
            if self._lora is not None:
                self._lora.step = step
        return tape

    def _new_numbers(self, rows: int) -> tuple[Tensor, Tensor]:
        pages = torch.zeros(rows, self._most_pages, dtype=torch.int32)
        return pages, torch.empty(rows, dtype=torch.int64)

    def _new_sources(self, rows: int) -> PlannedSources | None:
        if not self._source_pages:
            return None
        return PlannedSources(
            pages=torch.zeros(rows, self._source_pages, dtype=torch.int32),
            lengths=torch.zeros(rows, dtype=torch.int32),
            seen=None,
            slots=torch.zeros(0, dtype=torch.int64),
        )

    def _proven(self, tape: Tape, batch: ForwardBatch, ids: Tensor) -> bool:
        """Whether the tape gives the model's output for other tokens. This overwrites the step's
        keys and values, which are written again when the step is replayed or run."""
        others = torch.where(ids == 0, 1, 0)
        tape.load(batch, others, self._step)
        played = tape.play().clone()
        self._attention.plan(batch)
        expected = self._model(others, torch.from_numpy(batch.positions), self._attention)
        return torch.allclose(played, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


class _KindOfStep(NamedTuple):
    """The steps that have a tape in common."""

    rows: int
    with_adapters: bool

    def __str__(self) -> str:
        return f"{self.rows} rows{' with adapters' * self.with_adapters}"


def _new_tokens(rows: int) -> LoraTokens:
    tokens, slots = torch.zeros(2, rows, dtype=torch.int32)
    return LoraTokens(tokens, slots, torch.zeros(1, dtype=torch.int32))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records torch's operators on a tape as they run, and keeps every tensor alive."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape = tape

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, since no compiler runs here. True would make torch import its compiler, which
        takes seconds during serving."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = [result] if isinstance(result, Tensor) else result
        if not isinstance(made, (list, tuple)) or not all(isinstance(t, Tensor) for t in made):
            raise NotRecordableError(f"{func} gives {type(result).__name__}")
        given = {t.untyped_storage().data_ptr() for t in _tensors((*args, *kwargs.values()))}
        new = [t for t in made if t.untyped_storage().data_ptr() not in given]
        self._tape.kept += made
        self._tape.nbytes += sum(t.untyped_storage().nbytes() for t in new)
        if func._schema.is_mutable:
            self._tape.calls.append((_repeat, (func, args, kwargs)))
        elif new and func.overloadpacket not in UNWRITTEN:
            if len(new) != len(made):
                raise NotRecordableError(f"{func} gives views and new tensors")
            self._tape.calls.append(_again(func, args, kwargs, new))
        return result


def _again(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], memory: list[Tensor]) -> Call:
    """A call that computes into `memory`. It uses the operator's `out` variant if that accepts
    these arguments, which halves the time of a small operator."""
    if (into := getattr(func.overloadpacket, "out", None)) is not None and len(memory) == 1:
        call = partial(into, *args, **kwargs, out=memory[0])
        try:
            call()
        except (RuntimeError, TypeError):  # the variant rejects them, e.g. a number for a tensor
            pass
        else:
            return call, ()
    return _recompute, (func, args, kwargs, memory)


def _repeat(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    func(*args, **kwargs)


def _recompute(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], memory: list[Tensor]
) -> None:
    result = func(*args, **kwargs)
    for tensor, value in zip(
        memory, [result] if isinstance(result, Tensor) else result, strict=True
    ):
        tensor.copy_(value)


def _tensors(values: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found
