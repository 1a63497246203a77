"""`Kernels`: the library's functions, and a list of their calls where one is wanted."""

import ctypes
from collections.abc import Callable
from typing import Any

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Kernels:
    """Functions of kernels.cpp without their prefix; arguments are addresses and numbers."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.stop_recording()

    def record(self, calls: list[Call]) -> None:
        """From now on each call is made and put into `calls`, until `stop_recording`."""

        def recorded(function: Callable[..., Any]) -> Callable[..., None]:
            def call(*args: Any) -> None:
                function(*args)
                calls.append((function, args))

            return call

        self._assign(recorded)

    def stop_recording(self) -> None:
        self._assign(lambda function: function)

    def _assign(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        library = self._library
        self.linear = wrap(library.pando_linear)
        self.rms_norm = wrap(library.pando_rms_norm)
        self.add_rms_norm = wrap(library.pando_add_rms_norm)
        self.gated = wrap(library.pando_gated)
        self.rotate = wrap(library.pando_rotate)
        self.store = wrap(library.pando_store)
        self.attend = wrap(library.pando_attend)
