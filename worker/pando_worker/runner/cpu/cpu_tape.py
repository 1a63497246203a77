"""Tapes: the calls of a decode step with a given number of rows, recorded once and replayed.

A step of a small model is mostly Python: modules, views, new tensors. Its kernels and their shapes
depend only on the number of rows, so a tape keeps the calls together with the tensors that they
were made with. A later step writes its tokens to the tape's inputs and makes the calls again. This
is the CPU's equivalent of a CUDA graph. Kernels are recorded as they are called, and torch's
operators by a dispatch mode, so it works for any model's code.

A tape is used only after it has reproduced the model's output for other tokens.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pando_worker.attention.backend import AttentionBackend, page_numbers
from pando_worker.batch import ForwardBatch
from pando_worker.cpu.attention import CpuAttention
from pando_worker.cpu.kernels import Call
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
    calls: list[Call] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)  # tensors whose memory the calls use
    nbytes: int = 0  # of memory that only this tape uses

    def load(self, batch: ForwardBatch, input_ids: Tensor) -> None:
        self.input_ids.copy_(input_ids)
        self.positions.copy_(torch.from_numpy(batch.positions))
        self.lengths.copy_(torch.from_numpy(batch.seq_lens))
        for kind, (pages, out_slots) in self.numbers.items():
            table, slots = page_numbers(batch, kind)
            pages[:, : table.shape[1]].copy_(torch.from_numpy(table))
            out_slots.copy_(torch.from_numpy(slots))

    def play(self) -> Tensor:
        for function, args in self.calls:
            function(*args)
        return self.logits


class DecodeTapes:
    """Runs batches that it has tapes for, and records a tape when a number of rows recurs.

    Args:
        model: maps input ids, positions and a planned backend to logits
        most_pages: largest number of pages of one request
    """

    def __init__(
        self,
        model: Model,
        attention: CpuAttention,
        futures: FutureTokens,
        most_pages: int,
    ) -> None:
        self._model = model
        self._attention = attention
        self._futures = futures
        self._most_pages = most_pages
        self._tapes: dict[int, Tape] = {}
        self._seen: set[int] = set()
        self._refused: set[int] = set()

    @torch.inference_mode()
    def run(self, batch: ForwardBatch) -> Tensor | None:
        """Logits of all rows, float32 [rows, vocab_size], valid until the next step; None without a
        tape."""
        rows = len(batch.extend_lens)
        if rows > MOST_ROWS or rows != len(batch.input_ids):
            return None
        if tape := self._tapes.get(rows):
            tape.load(batch, self._futures.resolve(batch.input_ids))
            return tape.play()
        if rows in self._seen and rows not in self._refused:
            return self._make(batch, rows)
        self._seen.add(rows)
        return None

    def _make(self, batch: ForwardBatch, rows: int) -> Tensor | None:
        """Record this step."""
        ids = self._futures.resolve(batch.input_ids)
        try:
            tape = self._record(batch, ids, rows)
        except NotRecordableError as reason:
            self._refused.update(range(1, MOST_ROWS + 1))
            log.info("decode steps of this model are not recorded: %s", reason)
            return None
        used = sum(other.nbytes for other in self._tapes.values()) + tape.nbytes
        if used > MOST_BYTES:
            self._refused.add(rows)
            log.info("steps of %d rows are not recorded: recorded ones take enough memory", rows)
            return None
        if not self._proven(tape, batch, ids):
            self._refused.add(rows)
            log.warning("a recorded step of %d rows differs from the model: not used", rows)
            return None
        self._tapes[rows] = tape
        tape.load(batch, ids)
        return tape.play()

    def _record(self, batch: ForwardBatch, ids: Tensor, rows: int) -> Tape:
        tape = Tape(
            input_ids=ids.clone(),
            positions=torch.empty(rows, dtype=torch.int64),
            lengths=torch.empty(rows, dtype=torch.int32),
            numbers={kind: self._new_numbers(rows) for kind in self._attention.kinds},
            logits=ids,  # replaced below
        )
        tape.load(batch, ids)
        extends = torch.ones(rows, dtype=torch.int32)
        tape.kept.append(extends)
        self._attention.plan_on(tape.numbers, tape.lengths, extends, batch.page_size)
        self._attention.kernels.record(tape.calls, self._attention.threads)
        try:
            with _Recorder(tape):
                tape.logits = self._model(tape.input_ids, tape.positions, self._attention)
        finally:
            self._attention.kernels.stop_recording()
        return tape

    def _new_numbers(self, rows: int) -> tuple[Tensor, Tensor]:
        pages = torch.zeros(rows, self._most_pages, dtype=torch.int32)
        return pages, torch.empty(rows, dtype=torch.int64)

    def _proven(self, tape: Tape, batch: ForwardBatch, ids: Tensor) -> bool:
        """Whether the tape gives the model's output for other tokens. This overwrites the step's
        keys and values, which are written again when the step is replayed or run."""
        others = torch.where(ids == 0, 1, 0)
        tape.load(batch, others)
        played = tape.play().clone()
        self._attention.plan(batch)
        expected = self._model(others, torch.from_numpy(batch.positions), self._attention)
        return torch.allclose(played, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


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
