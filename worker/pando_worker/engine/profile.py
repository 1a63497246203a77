"""`pando worker --profile DIR`: a trace of the first busy steps, which shows where time is spent.

The trace is in Chrome's format (chrome://tracing, Perfetto); a table of the most expensive
operators lies beside it. Profiling slows steps down, so it ends after these steps.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

log = logging.getLogger("pando.worker.scheduler")

ROWS = 40  # rows of the table


class StepProfile:
    def __init__(
        self,
        directory: Path,
        before_write: Callable[[], None] = lambda: None,
        *,
        skip: int = 20,
        steps: int = 50,
    ) -> None:
        """
        Args:
            before_write: called before the trace is written, which takes long
            skip: first steps to leave out, in which kernels are chosen and memory is first touched
            steps: how many to profile
        """
        self._directory = directory
        self._before_write = before_write
        self._first, self._last = skip, skip + steps
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            # The model may run in another thread.
            experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True),
        )
        self._started = False
        self.done = False

    def update(self, steps: int) -> None:
        """Call between two steps; `steps` have been run so far."""
        if not self._started and steps >= self._first:
            self._started = True
            self._profile.start()
        elif self._started and not self.done and steps >= self._last:
            self.done = True
            self._profile.stop()
            self._before_write()
            self._write()

    def _write(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        trace, table = self._directory / "trace.json", self._directory / "operators.txt"
        self._profile.export_chrome_trace(str(trace))
        averages = self._profile.key_averages()
        table.write_text(averages.table(sort_by="self_cpu_time_total", row_limit=ROWS))
        log.info("profile of %d steps: %s, %s", self._last - self._first, trace, table)
