"""The output head of a model of transformers, apart from its decoder.

What lies between hidden states and logits, as soft caps and scales, differs from family to family
and is written in the family's `forward`. So that runs, with a decoder that gives what it is given.
"""

import copy
from typing import Any

from torch import Tensor, nn


class Head:
    """Shares the modules of `model`, but for the decoder."""

    def __init__(self, model: Any) -> None:
        self._model = copy.copy(model)
        self._model._modules = model._modules | {model.base_model_prefix: _GivenStates()}

    def logits(self, hidden: Tensor) -> Tensor:
        """Of final hidden states [n, hidden_size]; float32 [n, vocabulary of the head]."""
        logits: Tensor = self._model(inputs_embeds=hidden[None], use_cache=False).logits
        return logits[0].float()


class _Outputs:
    """Of a decoder: hidden states, and nothing of all else that one may have."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: Any) -> Any:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


class _GivenStates(nn.Module):
    @property
    def decoder(self) -> "_GivenStates":
        """What some families call in place of the whole."""
        return self

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _Outputs:
        return _Outputs(inputs_embeds)
