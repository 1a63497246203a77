"""Random weights in place of a checkpoint's: for measurements, where numbers do not matter."""

import torch
from torch import nn

from pando_worker.models.loading.allocation import allocate

# As models are initialised; with larger ones activations grow from layer to layer.
STD = 0.02


@torch.no_grad()
def fill_at_random(model: nn.Module, device: torch.device) -> None:
    """Give `model` memory on `device`, and the same numbers each time, on each rank: matrices and
    biases are random, the weights of norms one."""
    allocate(model, device)
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and not name.endswith("bias"):
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=STD, generator=generator)
