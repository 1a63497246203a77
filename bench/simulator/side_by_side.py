"""Runs independent runs of a benchmark in as many processes as there are cores."""

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
    """The results of `run`, a module's function, for each arguments, as they end. The first error
    cancels the runs that have not begun."""
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
    """Ends with the parent, however that ends; otherwise an unwanted day would be simulated."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a process of the pool"
    parent.join()
    for valkey in psutil.Process().children():
        valkey.kill()
    os._exit(1)  # an exception would end the day, and the process would start the next one
