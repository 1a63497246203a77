"""Chooses how weights are quantized: as the settings say, if the kernels can multiply with it."""

import logging

import torch

from pando_worker.cpu.build import KernelsUnavailable
from pando_worker.cpu.library import load_kernels
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.loading.schemes.int4 import Int4
from pando_worker.models.loading.schemes.int8 import Int8
from pando_worker.models.loading.schemes.scheme import Scheme
from pando_worker.models.loading.schemes.stored import AsStored
from pando_worker.settings import WorkerSettings

log = logging.getLogger("pando.worker.cpu")


def choose_scheme(settings: WorkerSettings, dtype: torch.dtype, *, is_gguf: bool) -> Scheme | None:
    """The scheme; None if all weights are numbers of `dtype`.

    Args:
        is_gguf: the weights are in a GGUF file, whose integers `auto` keeps

    Raises:
        UnsupportedModel: the settings require integers, but the kernels cannot be used.
    """
    if settings.quantization == "none":
        return None
    unfit = _unfit(settings, dtype)
    missing = None if unfit else _missing_kernels()
    if settings.quantization == "auto":
        if not unfit and not missing:
            return AsStored()
        if is_gguf and missing:
            log.warning(
                "the GGUF file's integers are decoded to %s, which takes more memory and is slower:"
                " there are no C++ kernels to multiply with them: %s. Install a C++ compiler such"
                " as g++, or set quantization to 'none' to accept this",
                dtype,
                missing,
            )
        elif is_gguf:
            log.info("the GGUF file's integers are decoded to %s: %s", dtype, unfit)
        return None
    if obstacle := unfit or missing:
        raise UnsupportedModel(f"quantization is {settings.quantization!r}, but {obstacle}")
    return Int8() if settings.quantization == "int8" else Int4()


def _unfit(settings: WorkerSettings, dtype: torch.dtype) -> str | None:
    """Why the settings rule integers out; None if they do not."""
    if settings.device != "cpu":
        return f"device is {settings.device!r}: products with integers are for CPUs"
    if dtype != torch.float32:
        return f"dtype is {dtype}: products with integers give float32"
    if settings.load_format != "auto":
        return f"load_format is {settings.load_format!r}, which reads no weights"
    if settings.cpu_kernels == "off":
        return "cpu_kernels is 'off', and only the C++ kernels multiply with integers"
    return None


def _missing_kernels() -> str | None:
    """Why this machine has no kernels."""
    try:
        load_kernels()
    except KernelsUnavailable as reason:
        return str(reason)
    return None
