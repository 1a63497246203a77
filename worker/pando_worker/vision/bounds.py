"""What reading one image or video may cost its process."""

from collections.abc import Iterator
from contextlib import contextmanager

from pando_worker.reading.cpu_time import CpuTimeError, bounded_cpu_time
from pando_worker.reading.memory import bounded_memory
from pando_worker.vision.errors import ImageError

_MEMORY = 3 * 2**30  # bytes, beside what the process has already


@contextmanager
def bounded(cpu_s: float) -> Iterator[None]:
    """
    Raises:
        ImageError: the block takes more.
    """
    try:
        with bounded_cpu_time(cpu_s), bounded_memory(_MEMORY):
            yield
    except CpuTimeError as error:
        raise ImageError(f"takes more than {cpu_s:g} s to decode") from error
    except MemoryError as error:
        raise ImageError("takes too much memory to decode") from error
