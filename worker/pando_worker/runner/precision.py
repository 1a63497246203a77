"""The type of weights and activations."""

import torch

from pando_worker.settings import WorkerSettings
from pando_worker.settings.compute import DType

_AUTO_DTYPES = {
    # Measured on a CPU without half-precision units: bfloat16 prefills 8 times slower, float16 4.
    "cpu": torch.float32,
    "cuda": torch.bfloat16,
}

_DTYPES = {
    DType.FLOAT32: torch.float32,
    DType.BFLOAT16: torch.bfloat16,
    DType.FLOAT16: torch.float16,
}


def chosen_dtype(settings: WorkerSettings) -> torch.dtype:
    return _DTYPES.get(settings.dtype, _AUTO_DTYPES[settings.device])
