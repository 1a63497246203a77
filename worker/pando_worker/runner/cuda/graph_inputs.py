"""`GraphInputs`: what graphs read, at fixed addresses, filled before each replay."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import Int64
from pando_worker.models.lora.linear import LoraMemory, LoraTokens
from pando_worker.tensors.fixed_arrays import FixedArrays
from pando_worker.tensors.transfer import CopyMark


class GraphInputs:
    """All graphs share it, as they run one after another."""

    def __init__(self, most: int, device: torch.device, lora: LoraMemory | None) -> None:
        """
        Args:
            most: tokens of the largest graph
            lora: of the model, if it has adapters
        """
        self._device, self._lora = device, lora
        # By the number of a graph's tokens: their ids and positions.
        self._numbers: dict[int, FixedArrays] = {}
        self._copied = CopyMark(device)
        tokens, slots = torch.zeros(2, most, dtype=torch.int32, device=device)
        self._tokens = LoraTokens(tokens, slots, torch.zeros(1, dtype=torch.int32, device=device))

    def of(self, count: int) -> tuple[Tensor, Tensor]:
        """The ids and positions of a graph of `count` tokens, int64 [count] each."""
        if count not in self._numbers:
            self._numbers[count] = FixedArrays([(2, count)], self._device, np.int64)
        ids, positions = self._numbers[count].arrays[0].on_device
        return ids, positions

    def fill(self, count: int, ids: Int64, positions: Int64) -> None:
        """Those of a step, [n] each, for a graph of `count` tokens, whose others are 0."""
        numbers, n = self._numbers[count], len(ids)
        filled = numbers.arrays[0].filled
        filled[0, :n], filled[1, :n] = ids, positions
        filled[:, n:] = 0
        self._copied.wait()
        numbers.send()
        self._copied.set()

    def kinds(self, count: int) -> Iterator[bool]:
        """Whether adapters run, for each graph of `count` tokens to capture: without, and if the
        model has any, with. Meanwhile the model's adapters are those that the graph reads."""
        yield False
        if self._lora is not None:
            tokens = self._tokens
            self._lora.step = LoraTokens(tokens.tokens[:count], tokens.slots[:count], tokens.count)
            yield True
            self._lora.step = None

    def fill_adapters(self) -> bool:
        """Those of the step that the model has been prepared for; whether it has any."""
        step = None if self._lora is None else self._lora.step
        if step is None:
            return False
        self._tokens.tokens[: len(step.tokens)].copy_(step.tokens)
        self._tokens.slots[: len(step.slots)].copy_(step.slots)
        self._tokens.count.copy_(step.count)
        return True
