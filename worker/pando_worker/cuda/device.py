"""Which GPU a rank has, and its free memory."""

from collections.abc import Callable
from typing import Literal

import torch

from pando_worker.host_memory import CPU_BYTES
from pando_worker.models.errors import DeviceUnavailable, DoesNotFit


def find_device(kind: Literal["cpu", "cuda"], rank: int, ranks: int) -> torch.device:
    """The device of one rank. On CUDA it becomes the process's current device.

    Raises:
        DeviceUnavailable: torch finds no GPU, or fewer GPUs than ranks.
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
            " CUDA_VISIBLE_DEVICES say (a pod needs nvidia.com/gpu among its limits, a container"
            " --gpus), or take device 'cpu'"
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
        wanted: bytes for all ranks together, from the settings; by default 2 GiB on the CPU, and
            the free memory of each rank's GPU

    Raises:
        DoesNotFit: the GPU has less free memory than this rank's share.
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


def most_bytes(run: Callable[[], object], device: torch.device) -> int:
    """The most memory of a GPU that `run` takes at once: torch's, and what libraries take for
    themselves, such as the code of kernels and NCCL's buffers."""

    def of_others() -> int:
        free, total = torch.cuda.mem_get_info(device)
        return total - free - torch.cuda.memory_reserved(device)

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before, others = torch.cuda.memory_allocated(device), of_others()
    run()
    torch.cuda.synchronize(device)
    taken = torch.cuda.max_memory_allocated(device) - before
    return taken + max(0, of_others() - others)
