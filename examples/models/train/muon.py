"""Muon: momentum whose matrix updates are orthogonalised, with AdamW for all that is no matrix.

In a run of a thousand steps it reaches a given loss in clearly fewer tokens than AdamW alone. The
one in torch orthogonalises in bfloat16, which CPUs without bfloat16 units emulate slowly.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # quintic, tuned for a steep start at zero


class Muon(torch.optim.Optimizer):
    """For two-dimensional weights of hidden layers. `lr` is the update's size per element."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                momentum = self.state[param].setdefault("momentum", torch.zeros_like(param))
                momentum.lerp_(param.grad, 1 - group["momentum"])
                update = orthogonalised(param.grad.lerp(momentum, group["momentum"]))
                param.mul_(1 - group["lr"] * group["weight_decay"])
                # 0.2 * sqrt(longer side): the root mean square of an AdamW update
                param.sub_(update, alpha=group["lr"] * 0.2 * max(param.shape) ** 0.5)


def orthogonalised(gradient: Tensor) -> Tensor:
    """U V^T of the gradient's singular value decomposition, roughly, in five iterations."""
    a, b, c = NEWTON_SCHULZ
    tall = gradient.shape[0] > gradient.shape[1]
    x: Tensor = gradient.T if tall else gradient
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x
