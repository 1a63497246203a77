"""The output head of a transformers model, without its decoder.

The computation between hidden states and logits, such as soft caps and scales, differs by family
and is part of the family's `forward`. So `forward` runs, with a decoder that returns its input.
"""

import copy
from typing import Any

from torch import Tensor, nn


class Head:
    """Shares the modules of `model`, except the decoder."""

    def __init__(self, model: Any) -> None:
        self._model = copy.copy(model)
        self._model._modules = model._modules | {model.base_model_prefix: _GivenStates()}

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of final hidden states [n, hidden_size]: float32 [n, size of the head]."""
        logits: Tensor = self._model(inputs_embeds=hidden[None], use_cache=False).logits
        return logits[0].float()


class _Outputs:
    """A decoder's outputs: hidden states, and None for everything else."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: Any) -> Any:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


class _GivenStates(nn.Module):
    @property
    def decoder(self) -> "_GivenStates":
        """Some families call this instead of the whole model."""
        return self

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _Outputs:
        return _Outputs(inputs_embeds)
