"""Starts the scheduler process and ensures that it never outlives this one."""

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from pando_worker.server.process.socket_folder import socket_folder
from pando_worker.settings import WorkerSettings
from pando_worker.stacks import dump_stacks_on_signal

SchedulerMain = Callable[[WorkerSettings, str, str, Callable[[], None]], None]
"""The process's function: (settings, command endpoint, event endpoint, configure_logging)."""


@dataclass(frozen=True, slots=True)
class SchedulerProcess:
    process: BaseProcess
    command_endpoint: str  # bound by the scheduler process; the HTTP process binds the other
    event_endpoint: str
    directory: Path  # private to the worker's processes


@contextmanager
def scheduler_process(
    main: SchedulerMain, settings: WorkerSettings, configure_logging: Callable[[], None]
) -> Iterator[SchedulerProcess]:
    """Runs the process while the block runs, then kills it, as it has nothing to save. Call it
    before this process has sockets that the other must not hold open.

    Raises CannotStartError if no sockets can be created.
    """
    with socket_folder() as directory:
        commands, events = f"ipc://{directory}/commands", f"ipc://{directory}/events"
        context = _context()
        process = context.Process(
            target=_run,
            args=(main, Path(directory), settings, commands, events, configure_logging),
            name="pando-scheduler",
        )
        with _signals_ignored():
            process.start()
        try:
            yield SchedulerProcess(process, commands, events, Path(directory))
        finally:
            process.kill()
            process.join()


def _context() -> ForkContext | SpawnContext:
    """Fork if possible: it shares the modules already imported, which a new Python needs a third of
    a second to import. A fork is unsafe if there are other threads, such as a download may leave
    behind, because a lock that they hold would stay locked; macOS's libraries do not support it
    either."""
    if sys.platform == "linux" and threading.active_count() == 1:
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def _run(
    main: SchedulerMain,
    directory: Path,
    settings: WorkerSettings,
    commands: str,
    events: str,
    configure_logging: Callable[[], None],
) -> None:
    dump_stacks_on_signal(directory, "rank-0")
    main(settings, commands, events, configure_logging)


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """A process started in the block ignores both signals from its first moment."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
