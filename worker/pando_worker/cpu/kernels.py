"""`Kernels`: the library's functions, with optional recording of their calls."""

import ctypes
from collections.abc import Callable
from typing import Any

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Kernels:
    """The functions of kernels.cpp without their prefix; arguments are addresses and numbers."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.stop_recording()

    def record(self, calls: list[Call], threads: int) -> None:
        """Make each call and append it to `calls`, until `stop_recording`. Consecutive kernel calls
        become one entry, which `threads` threads run together."""
        run: _Run | None = None

        def recorded(function: Callable[..., Any]) -> Callable[..., None]:
            def call(*args: Any) -> None:
                nonlocal run
                if not calls or calls[-1][0] is not run:
                    run = _Run(self._library, threads)
                    calls.append((run, ()))
                run.add(function, args)

            return call

        self._assign(recorded)

    def stop_recording(self) -> None:
        self._assign(lambda function: function)

    def _assign(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        library = self._library
        self.linear = wrap(library.pando_linear)
        self.lora_shrink = wrap(library.pando_lora_shrink)
        self.lora_expand = wrap(library.pando_lora_expand)
        self.quantize = wrap(library.pando_quantize)
        self.grouped_linear = wrap(library.pando_grouped_linear)
        self.grouped_embed = wrap(library.pando_grouped_embed)
        self.rms_norm = wrap(library.pando_rms_norm)
        self.layer_norm = wrap(library.pando_layer_norm)
        self.add = wrap(library.pando_add)
        self.gelu = wrap(library.pando_gelu)
        self.add_rms_norm = wrap(library.pando_add_rms_norm)
        self.embed = wrap(library.pando_embed)
        self.angles = wrap(library.pando_angles)
        self.best = wrap(library.pando_best)
        self.totals = wrap(library.pando_totals)
        self.forbid = wrap(library.pando_forbid)
        self.gated = wrap(library.pando_gated)
        self.rotate = wrap(library.pando_rotate)
        self.store = wrap(library.pando_store)
        self.attend = wrap(library.pando_attend)


class _Run:
    """Consecutive kernel calls as one call."""

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._library, self._threads = library, threads
        self._tape = library.pando_tape_new()

    def __del__(self) -> None:
        self._library.pando_tape_free(self._tape)

    def add(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Make a call now, and again in every later call of this run."""
        self._library.pando_record(self._tape)
        try:
            function(*args)
        finally:
            self._library.pando_record(None)

    def __call__(self) -> None:
        self._library.pando_play(self._tape, self._threads)
