"""Large pinned tensors.

torch's own allocator of pinned memory rounds sizes up to a power of two, so 40 GiB would pin 64.
Here ordinary memory is registered with CUDA, which pins what the tensor has.
"""

import weakref

import torch
from torch import Tensor

from pando_worker.tensors.huge_pages import advise_huge_pages


class PinningFailed(Exception):  # noqa: N818, a state of the machine and no programming error
    """The system does not let this process pin so much memory; the message has CUDA's error."""


def pinned_empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in host memory that stays pinned as long as it, or a view of it, lives.

    Raises:
        PinningFailed
    """
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.nbytes == 0:
        return tensor
    advise_huge_pages(tensor)
    cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = tensor.data_ptr()
    if error := int(cudart.cudaHostRegister(address, tensor.nbytes, 0)):
        text = cudart.cudaGetErrorString(cudart.cudaError(error))
        raise PinningFailed(f"{tensor.nbytes / 2**30:.1f} GiB cannot be pinned: {text}")
    weakref.finalize(tensor.untyped_storage(), cudart.cudaHostUnregister, address)
    return tensor
