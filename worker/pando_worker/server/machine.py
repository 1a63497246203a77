"""Describes the worker's hardware for `/server_info`, without torch."""

import os
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pando_worker.cores import available_cores

_CPU = Path("/proc/cpuinfo")
_GPUS = Path("/proc/driver/nvidia/gpus")


@cache
def machine(device: str, ranks: int) -> str:
    """Such as "2 x NVIDIA H100 80GB HBM3" or "AMD EPYC, 1 of 2 cores".

    Args:
        ranks: processes that share the model; on cuda, each has its own GPU.
    """
    if device == "cuda":
        return f"{ranks} x {_first(_GPUS.glob('*/information'), 'Model') or 'unknown GPU'}"
    processor = _first([_CPU], "model name") or platform.processor() or platform.machine()
    return f"{processor}, {available_cores()} of {os.cpu_count()} cores"


def _first(files: Iterable[Path], name: str) -> str | None:
    """The value of the first `name: value` in the files that can be read."""
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            key, separator, value = line.partition(":")
            if separator and key.strip() == name:
                return value.strip()
    return None
