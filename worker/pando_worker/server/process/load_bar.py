"""Shows how far a model has loaded, if that takes more than a moment: a bar on a terminal, else a
line in the log now and then.
"""

import asyncio
import logging
import sys
from typing import Protocol, TextIO

from pando_worker.messages import Loading
from pando_worker.progress import in_words

log = logging.getLogger("pando.worker")

AFTER_S = 2.0
BAR_S = 0.2  # between two drawings
LINES_S = 10.0  # between two lines
WIDTH = 30
_ERASE = "\x1b[K"


class LoadingEngine(Protocol):
    @property
    def loaded(self) -> asyncio.Event: ...

    @property
    def loading(self) -> Loading | None: ...


async def show_loading(
    engine: LoadingEngine,
    out: TextIO = sys.stderr,
    after_s: float = AFTER_S,
    lines_s: float = LINES_S,
) -> None:
    """Returns when the engine has loaded."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    is_terminal = out.isatty()
    pause_s = after_s
    while not await _within(engine.loaded, pause_s):
        seconds = loop.time() - started
        if loading := engine.loading:
            if is_terminal:
                print(bar(loading, seconds), end="", file=out, flush=True)
            else:
                what = in_words(loading.stage, loading.done)
                log.info("loading: %s, after %.0f s", what, seconds)
        pause_s = BAR_S if is_terminal else lines_s
    if is_terminal:
        print(_ERASE, end="", file=out, flush=True)


def bar(loading: Loading, seconds: float) -> str:
    """One line of a terminal. The cursor stays at its start, so a line of the log, which may be
    another process's, overwrites it."""
    full = round(WIDTH * loading.done)
    drawn = f"[{'#' * full}{'.' * (WIDTH - full)}] " if loading.done else ""
    return f"{_ERASE}{drawn}{in_words(loading.stage, loading.done)}, {seconds:.0f} s\r"


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
