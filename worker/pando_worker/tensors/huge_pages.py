"""Huge pages for large tensors in host memory, where the system grants them on `madvise`.

Keys and values are scattered in KV pages of a few KiB, so with ordinary memory pages almost every
read misses the TLB. With pages of 2 MiB it does not.
"""

import ctypes
import mmap
import sys

from torch import Tensor

HUGE = 2 * 2**20  # bytes


def advise_huge_pages(tensor: Tensor) -> None:
    """Call before the first access to the tensor's memory. No effect on a GPU, on systems other
    than Linux, and where the system grants no huge pages."""
    if not tensor.is_cpu or sys.platform != "linux":
        return
    first = -(-tensor.data_ptr() // HUGE) * HUGE
    size = (tensor.data_ptr() + tensor.nbytes - first) // HUGE * HUGE
    if size > 0:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
