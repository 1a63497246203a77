"""`ThreadedRunner`: makes a blocking runner asynchronous with one thread.

For the CPU, where the model runs in the caller's thread; on a GPU launches are already
asynchronous. Launches and samples run in the order of their calls. Torch releases the GIL while it
computes, so the scheduler's Python runs in parallel.
"""

from concurrent.futures import Future, ThreadPoolExecutor

from pando_worker.batch import ForwardBatch, Int32, ModelRunner, Step, StepResult


class ThreadedRunner:
    """A `ModelRunner` around another one. Errors are raised by `result`."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")

    def launch(self, batch: ForwardBatch) -> "_ThreadedStep":
        return _ThreadedStep(self._thread, self._thread.submit(self._runner.launch, batch))

    def close(self) -> None:
        """Wait for launched steps, then end the thread."""
        self._thread.shutdown()


class _ThreadedStep:
    def __init__(self, thread: ThreadPoolExecutor, launched: Future[Step]) -> None:
        self._thread = thread
        self._launched = launched
        self._result: Future[StepResult] | None = None

    def sample(self, mask: Int32 | None) -> None:
        self._result = self._thread.submit(self._finish, None if mask is None else mask.copy())

    def result(self) -> StepResult:
        assert self._result is not None, "sample comes first"
        return self._result.result()

    def _finish(self, mask: Int32 | None) -> StepResult:
        step = self._launched.result()
        step.sample(mask)
        return step.result()
