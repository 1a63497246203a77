"""The device's ceilings: measured rates of reading bytes and multiplying numbers, and the peak in
its data sheet."""

import time
from collections.abc import Callable

import msgspec
import torch


class Ceilings(msgspec.Struct, frozen=True):
    bytes_per_s: float  # the faster of reading and copying a large tensor
    flops_per_s: float  # of a large matrix product in the model's dtype
    peak_flops_per_s: float | None = None  # of dense bfloat16, by the data sheet


# From NVIDIA's data sheets: dense bfloat16, in 10^12 per second. The longest name that a device's
# name begins with applies.
_PEAKS = {
    "NVIDIA A100": 312.0,
    "NVIDIA H100 80GB HBM3": 989.4,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H200": 989.4,
    "NVIDIA H200 NVL": 835.5,
}


def peak_of(device_name: str) -> float | None:
    """Operations per second; None for a device that is not listed."""
    names = [name for name in _PEAKS if device_name.startswith(name)]
    return 1e12 * _PEAKS[max(names, key=len)] if names else None


def measure(
    device: torch.device, dtype: torch.dtype, *, large: bool, peak: float | None = None
) -> Ceilings:
    """
    Args:
        peak: operations per second, from the data sheet
        large: sizes for a GPU; otherwise small enough for a CPU
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
        peak_flops_per_s=peak,
    )


def fastest(device: torch.device, work: Callable[[], object], rounds: int = 10) -> float:
    """Seconds of the fastest run, because a ceiling is the best possible value."""
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
