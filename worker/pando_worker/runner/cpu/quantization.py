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


def choose_scheme(settings: WorkerSettings, dtype: torch.dtype) -> Scheme | None:
    """The scheme; None if all weights are numbers of `dtype`.

    Raises:
        UnsupportedModel: the settings require integers, but the kernels cannot be used.
    """
    if settings.quantization == "none":
        return None
    obstacle = _obstacle(settings, dtype)
    if settings.quantization == "auto":
        if obstacle is None:
            return AsStored()
        log.debug("quantized weights would be decoded: %s", obstacle)
        return None
    if obstacle is not None:
        raise UnsupportedModel(f"quantization is {settings.quantization!r}, but {obstacle}")
    return Int8() if settings.quantization == "int8" else Int4()


def _obstacle(settings: WorkerSettings, dtype: torch.dtype) -> str | None:
    """Why weights cannot be integers here; None if they can."""
    if settings.device != "cpu":
        return f"device is {settings.device!r}: products with integers are for CPUs"
    if dtype != torch.float32:
        return f"dtype is {dtype}: products with integers give float32"
    if settings.load_format != "auto":
        return f"load_format is {settings.load_format!r}, which reads no weights"
    if settings.cpu_kernels == "off":
        return "cpu_kernels is 'off', and only the C++ kernels multiply with integers"
    try:
        load_kernels()
    except KernelsUnavailable as reason:
        return str(reason)
    return None
