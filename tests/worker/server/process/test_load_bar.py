"""What is shown while a model loads."""

import asyncio
import io
import logging

import pytest

from pando_worker.messages import Loading
from pando_worker.progress import Stage
from pando_worker.server.process.load_bar import bar, show_loading


class Engine:
    def __init__(self, loading: Loading | None) -> None:
        self.loading = loading
        self.loaded = asyncio.Event()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HALF = Loading(stage=Stage.WEIGHTS, done=0.5)


def test_a_bar_shows_the_share_and_leaves_the_cursor_at_its_start() -> None:
    assert bar(HALF, 12.3) == f"\x1b[K[{'#' * 15}{'.' * 15}] weights, 50 %, 12 s\r"
    assert bar(Loading(stage=Stage.KERNELS, done=0.0), 40.0) == "\x1b[Kkernels, 40 s\r"


async def test_a_terminal_gets_a_bar_that_is_erased_when_the_model_is_loaded() -> None:
    engine, out = Engine(HALF), Terminal()
    showing = asyncio.create_task(show_loading(engine, out, after_s=0.0))
    while "weights, 50 %" not in out.getvalue():  # noqa: ASYNC110, no event says so
        await asyncio.sleep(0)
    engine.loaded.set()
    await showing
    assert out.getvalue().endswith("\r\x1b[K")


async def test_a_start_of_a_moment_shows_nothing() -> None:
    engine, out = Engine(HALF), Terminal()
    engine.loaded.set()
    await show_loading(engine, out)
    assert "weights" not in out.getvalue()


async def test_a_log_gets_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    engine, out = Engine(HALF), io.StringIO()
    with caplog.at_level(logging.INFO, logger="pando.worker"):
        showing = asyncio.create_task(show_loading(engine, out, after_s=0.0, lines_s=600.0))
        while not caplog.messages:  # noqa: ASYNC110, no event says so
            await asyncio.sleep(0)
        engine.loaded.set()
        await showing
    assert caplog.messages == ["loading: weights, 50 %, after 0 s"]
    assert out.getvalue() == ""
