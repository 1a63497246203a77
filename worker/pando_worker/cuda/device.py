"""Which GPU a rank has, and what memory is left on it."""

from typing import Literal

import torch

from pando_worker.models.errors import DeviceUnavailable, DoesNotFit

CPU_BYTES = 2 * 2**30
"""What all ranks of a worker on the CPU may take together unless the settings say otherwise."""


def find_device(kind: Literal["cpu", "cuda"], rank: int, ranks: int) -> torch.device:
    """The device of one of a worker's ranks; on CUDA, also the process's current one from now on.

    Raises:
        DeviceUnavailable: torch sees no GPU, or fewer than there are ranks.
    """
    if kind == "cpu":
        return torch.device("cpu")
    if torch.version.cuda is None:
        raise DeviceUnavailable(
            f"device is 'cuda', but torch {torch.__version__} is built without CUDA; install a"
            " build with it (https://pytorch.org/get-started), or take device 'cpu'"
        )
    if not torch.cuda.is_available():
        raise DeviceUnavailable(
            "device is 'cuda', but torch finds no GPU; see what nvidia-smi and"
            " CUDA_VISIBLE_DEVICES say, or take device 'cpu'"
        )
    if torch.cuda.device_count() < ranks:
        raise DeviceUnavailable(
            f"tensor_parallel_size is {ranks}, but torch finds {torch.cuda.device_count()} GPUs"
        )
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    return device


def memory_for_model(device: torch.device, wanted: int | None, ranks: int) -> int:
    """Bytes that one rank's weights and KV pool may take.

    Args:
        wanted: bytes that the settings give all ranks together; by default 2 GiB on the CPU, and
            what is free on each rank's GPU

    Raises:
        DoesNotFit: less than its share is free on the GPU.
    """
    if device.type == "cpu":
        return (CPU_BYTES if wanted is None else wanted) // ranks
    free, _ = torch.cuda.mem_get_info(device)
    if wanted is None:
        return free
    share = wanted // ranks
    if share > free:
        raise DoesNotFit(
            f"memory_gib gives each rank {share / 2**30:.1f} GiB, but on {device}"
            f" {free / 2**30:.1f} GiB are free"
        )
    return share
