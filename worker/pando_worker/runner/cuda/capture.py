"""Captures what a model launches into CUDA graphs."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

Replay = Callable[[], None]


class Capture(Protocol):
    def __call__(self, run: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        """A function that repeats `run`, and the memory that holds its result."""
        ...


class CaptureInPieces(Protocol):
    def in_pieces(self, run: Callable[[Callable[[], None]], None]) -> list[Replay]:
        """Functions that repeat `run` in pieces.

        Args:
            run: calls its argument where a piece ends and the next begins
        """
        ...


class CudaCapture:
    """Captures into CUDA graphs that share their memory, as they run one after another.

    What one graph leaves for another must be memory from outside; what only a step's later pieces
    read may be memory of its earlier ones, as these run before and no other graph runs between.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, run: Callable[[], Tensor]) -> tuple[Replay, Tensor]:
        results: list[Tensor] = []

        def whole(_: Callable[[], None]) -> None:
            results[:] = [run()]

        (replay,) = self.in_pieces(whole)
        return replay, results[0]

    def in_pieces(self, run: Callable[[Callable[[], None]], None]) -> list[Replay]:
        # A first run outside the capture compiles and loads kernels, lets libraries allocate their
        # memory, and synchronises the ranks.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run(lambda: None)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # graphs have memory of their own
        graphs: list[torch.cuda.CUDAGraph] = []

        def begin() -> None:
            graphs.append(torch.cuda.CUDAGraph())
            # Not a global capture: other threads, such as NCCL's, make calls that would break it.
            graphs[-1].capture_begin(self._pool, capture_error_mode="thread_local")

        def cut() -> None:
            graphs[-1].capture_end()
            begin()

        with torch.cuda.stream(self._stream):
            begin()
            try:
                run(cut)
            finally:
                graphs[-1].capture_end()
        return [graph.replay for graph in graphs]
