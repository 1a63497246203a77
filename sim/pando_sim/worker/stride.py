"""`TimedStride`: a stride of the worker's scheduler, with the time of each of its steps."""

from bisect import bisect_left
from itertools import accumulate, pairwise

from pando_sim.worker.model import VirtualModel, Work
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.scheduler.stride import Stride

LONGEST = 128
"""Steps that are planned at once: an arrival may invalidate them."""


class TimedStride:
    """The next steps of a scheduler; `launch` and `take_in` apply them."""

    def __init__(self, stride: Stride, model: VirtualModel) -> None:
        borders = [*accumulate(_step_seconds(stride, model), initial=model.now_s)]
        self.start_s = borders[0]
        self.ends = borders[1:]  # of each step, in seconds
        self.rids = [req.rid for req in stride.reqs]  # that get a token in each step
        self._tokens = [req.sampling.seed for req in stride.reqs]
        self._borders = borders
        self._stride = stride
        self._model = model

    @property
    def has_prompt(self) -> bool:
        return bool(self._stride.prompts)

    @property
    def taken_in(self) -> int:
        return self._stride.taken_in

    def border(self, at_s: float) -> float:
        """The first end of a step at or after `at_s`; if there is none, the last end."""
        return self.ends[min(bisect_left(self.ends, at_s), len(self.ends) - 1)]

    def begun(self, at_s: float) -> int:
        """How many steps have begun before `at_s`, which must be after the start."""
        return min(bisect_left(self.ends, at_s) + 1, len(self.ends))

    def span(self, step: int) -> tuple[float, float]:
        """The beginning and end of a step."""
        return self._borders[step], self._borders[step + 1]

    def durations(self, first: int, last: int) -> list[float]:
        """The durations of the steps `first` to `last`, excluding `last`."""
        return [end_s - start_s for start_s, end_s in pairwise(self._borders[first : last + 1])]

    def launch(self, until: int) -> None:
        """Applies the beginning of the steps before number `until`."""
        self._stride.launch(until)

    def take_in(self, until: int) -> None:
        """Applies the results of the steps before number `until`."""
        if until > self.taken_in:
            self._stride.take_in(until, self._tokens, self.durations(self.taken_in, until))
            self._model.now_s = self.ends[until - 1]


def plan_stride(scheduler: Scheduler, model: VirtualModel) -> TimedStride | None:
    """The steps that can be taken at once from here; None if the next step cannot."""
    stride = scheduler.stride(LONGEST)
    # The model counts a chunk of one token after the prompt as a decode.
    if stride is None or any(chunks.tokens == 1 for chunks in stride.prompts):
        return None
    return TimedStride(stride, model)


def _step_seconds(stride: Stride, model: VirtualModel) -> list[float]:
    decodes, context = len(stride.reqs), stride.decode_context
    if not stride.prompts:
        return model.decode_steps(stride.steps, decodes, context)
    tokens = stride.prompt_tokens
    return [
        model.step_s(Work(tokens, prompt_context, decodes, context + step * decodes))
        for step, prompt_context in enumerate(stride.prompt_contexts(stride.steps))
    ]
