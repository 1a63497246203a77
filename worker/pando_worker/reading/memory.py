"""A bound on the memory of a process while it decodes a file, whose tables may claim gigabytes."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DATA_PAGES = 5  # the column in /proc/self/statm


@contextmanager
def bounded_memory(most: int) -> Iterator[None]:
    """
    Args:
        most: bytes that the block may write beyond those of before; more raise MemoryError, on
            Linux, which counts them
    """
    if sys.platform != "linux":
        yield
        return
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[_DATA_PAGES])
    now = pages * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (now + most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
