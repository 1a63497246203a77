"""What the device can do at best: bytes read and numbers multiplied a second, measured."""

import time
from collections.abc import Callable

import msgspec
import torch


class Ceilings(msgspec.Struct, frozen=True):
    bytes_per_s: float  # the faster of reading and copying a large tensor
    flops_per_s: float  # of a large matrix product in the model's dtype


def measure(device: torch.device, dtype: torch.dtype, *, large: bool) -> Ceilings:
    """
    Args:
        large: sizes for a GPU; otherwise such that a CPU is soon done
    """
    numbers, side = (2**30, 8192) if large else (2**22, 512)
    source = torch.ones(numbers, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    read_s = fastest(device, lambda: source.sum())
    copy_s = fastest(device, lambda: target.copy_(source))
    factor = torch.randn(side, side, device=device).to(dtype)
    product_s = fastest(device, lambda: factor @ factor)
    return Ceilings(
        bytes_per_s=max(source.nbytes / read_s, 2 * source.nbytes / copy_s),
        flops_per_s=2 * side**3 / product_s,
    )


def fastest(device: torch.device, work: Callable[[], object], rounds: int = 10) -> float:
    """Seconds of the fastest run."""
    work()
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        started = time.perf_counter()
        work()
        synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
