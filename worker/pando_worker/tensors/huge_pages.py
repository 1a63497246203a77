"""Huge pages for large tensors in the host's memory, where the system hands them out on advice.

Keys and values lie scattered by pages of a few KiB, so nearly each one read costs a walk through
the processor's page tables; in memory pages of 2 MiB it does not.
"""

import ctypes
import mmap
import sys

from torch import Tensor

HUGE = 2 * 2**20  # bytes


def advise_huge_pages(tensor: Tensor) -> None:
    """Before its memory is touched first. Without effect on a GPU, on other systems than Linux, and
    where the system has no huge pages left or gives none."""
    if not tensor.is_cpu or sys.platform != "linux":
        return
    first = -(-tensor.data_ptr() // HUGE) * HUGE
    size = (tensor.data_ptr() + tensor.nbytes - first) // HUGE * HUGE
    if size > 0:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
