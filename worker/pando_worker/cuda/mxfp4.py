"""Whether experts in 4-bit floats stay so on a device."""

from importlib import import_module

import torch

from pando_worker.cuda.toolchain import missing_for_triton
from pando_worker.models.mixture import FusedExperts
from pando_worker.settings import WorkerSettings


def choose_mxfp4(
    settings: WorkerSettings, device: torch.device, dtype: torch.dtype
) -> FusedExperts | None:
    """The kernels for experts in mxfp4; None if they must be decoded while they load. They run on
    every GPU, as they decode what they read."""
    wanted = settings.quantization == "auto" and settings.load_format == "auto"
    # Adapters change the products of experts, which are not in mxfp4.
    if device.type != "cuda" or dtype != torch.bfloat16 or not wanted or settings.max_loras:
        return None
    if missing_for_triton():
        return None
    return FusedExperts(import_module("pando_worker.cuda.fused_experts").fused_experts)
