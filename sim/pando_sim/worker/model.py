"""`VirtualModel`: a model runner that computes nothing but takes time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pando_sim.cost.model import CostModel
from pando_worker.batch import ForwardBatch, Int32, PageCopies, SamplingBatch, StepResult
from pando_worker.rates import Rate
from pando_worker.scheduler.batches.batching import StepRows

_INTS = np.empty(0, dtype=np.int64)
_INTS32 = np.empty(0, dtype=np.int32)
_FLOATS = np.empty(0, dtype=np.float32)
_SAMPLING = SamplingBatch(
    temperature=_FLOATS, top_k=_INTS, top_p=_FLOATS, min_p=_FLOATS, seed=_INTS, step=_INTS
)


@dataclass(slots=True)
class Work:
    """A step's rows summed up as the arguments of a cost model."""

    prefill_tokens: int = 0
    prefill_context: int = 0
    decodes: int = 0
    decode_context: int = 0


def work_of(step: StepRows) -> Work:
    work = Work()
    if step.decodes:
        work.decodes = len(step.decodes)
        work.decode_context = int(step.decodes.num_tokens.sum())
    for row in step.rows:
        count, start = row.extend_len, row.start
        if count == 1 and start >= row.req.prompt_len:
            work.decodes += 1
            work.decode_context += start + 1
        else:
            work.prefill_tokens += count
            work.prefill_context += row.context
    return work


class VirtualModel:
    """Its clock is the worker's: awaiting a step moves it by the step's time."""

    def __init__(self, cost: CostModel, page_size: int) -> None:
        self.now_s = 0.0
        self.slowness = 1.0  # factor of the steps' times
        self.copy_rate = Rate()  # bytes to and from the host
        self.on_prefill: Callable[[float], None] | None = None
        """Called with the end of each step that has prompts, while the clock still shows its
        beginning."""
        self._cost = cost
        self._page_size = page_size
        self._page_bytes = page_size * cost.kv_bytes_per_token
        self._work = Work()
        self._tokens: list[int] = []

    def clock(self) -> float:
        return self.now_s

    def build(self, step: StepRows) -> ForwardBatch:
        """A batch without arrays: nobody reads them, and making them takes longer than all the
        rest.

        All tokens of a request are its seed.
        """
        self._work = work_of(step)
        decodes = step.decodes.reqs if step.decodes else ()
        self._tokens = [req.sampling.seed for req in decodes]
        self._tokens += [row.req.sampling.seed for row in step.rows if row.samples]
        return ForwardBatch(
            input_ids=_INTS,
            positions=_INTS,
            out_slots=_INTS,
            extend_lens=_INTS32,
            seq_lens=_INTS32,
            page_table=_INTS32,
            page_size=self._page_size,
            req_rows=_INTS,
            sample_rows=_INTS,
            sampling=_SAMPLING,
        )

    def launch(self, batch: ForwardBatch) -> "VirtualStep":
        """Launches the batch that was built last."""
        copies_s = self._copy(batch.stores) + self._copy(batch.loads)
        work = self._work
        seconds = copies_s + self.step_s(work)
        return VirtualStep(self, seconds, bool(work.prefill_tokens), self._tokens)

    def step_s(self, work: Work) -> float:
        return self.slowness * self._cost.step_s(
            work.prefill_tokens, work.prefill_context, work.decodes, work.decode_context
        )

    def decode_steps(self, steps: int, decodes: int, decode_context: int) -> list[float]:
        seconds = self._cost.decode_steps(steps, decodes, decode_context)
        return [self.slowness * each for each in seconds]

    def _copy(self, copies: PageCopies | None) -> float:
        """The seconds of the copies, which run one after the other, before the model."""
        if copies is None or not len(copies.device):
            return 0.0
        num_bytes = len(copies.device) * self._page_bytes
        seconds = self.slowness * num_bytes / self._cost.copy_bytes_per_s
        self.copy_rate.add(num_bytes, seconds)
        return seconds


@dataclass(frozen=True, slots=True)
class VirtualStep:
    model: VirtualModel
    seconds: float
    has_prefill: bool
    tokens: list[int]

    def sample(self, mask: Int32 | None) -> None:
        """Nothing is sampled."""

    def result(self) -> StepResult:
        model = self.model
        end_s = model.now_s + self.seconds
        if self.has_prefill and model.on_prefill is not None:
            model.on_prefill(end_s)
        model.now_s = end_s
        return StepResult(tokens=np.array(self.tokens, dtype=np.int64))
