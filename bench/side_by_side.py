"""Runs of a benchmark that do not depend on each other, in as many processes as there are cores."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from threading import Thread
from typing import TypeVar

import psutil

Result = TypeVar("Result")


def side_by_side(
    run: Callable[..., Result], every: Iterable[tuple[object, ...]]
) -> Iterator[Result]:
    """What `run`, a module's function, makes of each arguments, as they end. The first error ends
    what has not begun."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=spawn, initializer=_end_with_parent
    ) as processes:
        try:
            for ended in as_completed([processes.submit(run, *one) for one in every]):
                yield ended.result()
        finally:
            processes.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """However the parent ends: a day that nobody waits for would be simulated to its end."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a process of the pool"
    parent.join()
    for valkey in psutil.Process().children():
        valkey.kill()
    os._exit(1)  # an exception would end the day, and the pool's process take the next one
