"""Runs of a benchmark that do not depend on each other, in as many processes as there are cores."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(
    run: Callable[..., Result], every: Iterable[tuple[object, ...]]
) -> Iterator[Result]:
    """What `run`, a module's function, makes of each arguments, as they end. The first error ends
    what has not begun."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as processes:
        try:
            for ended in as_completed([processes.submit(run, *one) for one in every]):
                yield ended.result()
        finally:
            processes.shutdown(cancel_futures=True)
