"""Which rows of a step's experts have which adapter.

An adapter of experts has two matrices for each expert and projection. The rows of an expert layer,
one for each expert that a token goes to, are sorted by slot and expert, slot * experts + expert,
and those with the same are multiplied together, as tokens of a linear layer with the same slot are.
"""

import torch
from torch import Tensor

from pando_worker.models.lora.linear import LoraTokens


def tokens_by_expert(
    step: LoraTokens, tokens: Tensor, experts: Tensor, num_experts: int, num_tokens: int
) -> LoraTokens:
    """The rows with an adapter, for a `LoraSite` with experts. Does not wait for the device.

    Args:
        step: of the whole step, without padding
        tokens: int64 [rows], the token of each row
        experts: int64 [rows], the expert of each
    """
    of_token = torch.full((num_tokens,), -1, dtype=torch.int32, device=tokens.device)
    of_token[step.tokens] = step.slots
    slots = of_token[tokens]
    has_any = slots >= 0
    keys = torch.where(has_any, slots * num_experts + experts, torch.iinfo(torch.int32).max)
    in_order, rows = keys.sort(stable=True)
    count = has_any.sum(dtype=torch.int32)[None]
    return LoraTokens(rows.int(), in_order.int(), count, linear_alone=False)
