"""Finds a model's attention layers by running it on "meta", with shapes but without values.

So the KV pool's layers are known before any weight is read, and a model whose attention a paged
pool cannot serve is refused with the reason.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from pando_worker.attention.backend import AttentionLayer
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.transformers_backend.masks import MaskFunction, window_of

PROBING = "pando_probe"

_TOKENS = 8
# Arguments that do not affect the scores. Dropout is among them, as it is inactive in evaluation.
_WITHOUT_EFFECT = {"position_ids", "cache_position", "use_cache", "output_attentions", "dropout"}


@dataclass(frozen=True, slots=True)
class Found:
    """An attention layer of a model."""

    module: str  # its name in the model
    layer: AttentionLayer  # without its sinks
    sinks: str | None  # name of their parameter


@dataclass(frozen=True, slots=True)
class _Call:
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    arguments: dict[str, Any]


class TrialRun:
    """Replaces attention and masks in models created for `PROBING`, one model at a time.

    Args:
        lengths: lengths that may occur in masks
    """

    def __init__(self, dtype: torch.dtype, context_length: int, lengths: list[int]) -> None:
        self._dtype = dtype
        self._context_length = context_length
        self._lengths = lengths
        self._calls: list[_Call] = []
        self._masks: list[tuple[Tensor, MaskFunction]] = []
        AttentionInterface.register(PROBING, self._attention)
        AttentionMaskInterface.register(PROBING, self._mask)

    @torch.inference_mode()
    def run(self, model: Any, layers: int) -> list[Found]:
        """The attention layers of a model on "meta"; `layers` is their number by the config.

        Raises:
            UnsupportedModel: a paged pool cannot serve one of them.
        """
        self._calls.clear()
        self._masks.clear()
        with torch.device("meta"):
            ids = torch.zeros(1, _TOKENS, dtype=torch.int64)
            # Without a mask, transformers would search the positions, which have no values here,
            # for borders of packed sequences.
            ones = torch.ones_like(ids)
            positions = torch.arange(_TOKENS)[None]
            model.base_model(
                input_ids=ids, attention_mask=ones, position_ids=positions, use_cache=False
            )
        self._check_count(layers)
        names = {module: name for name, module in model.named_modules()}
        parameters = {id(tensor): name for name, tensor in model.named_parameters()}
        return [
            self._found(index, call, names[call.module], parameters)
            for index, call in enumerate(self._calls)
        ]

    def _attention(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **arguments: Any,
    ) -> tuple[Tensor, None]:
        self._calls.append(_Call(module, query, key, value, attention_mask, arguments))
        heads, tokens = query.shape[1:3]
        return query.new_empty(1, tokens, heads, value.shape[-1]), None

    def _mask(
        self, *, q_length: int, kv_length: int, mask_function: MaskFunction, **_: Any
    ) -> Tensor:
        """A tensor of the mask's shape that identifies the mask when attention receives it."""
        mask = torch.empty(1, 1, q_length, kv_length, dtype=self._dtype, device="meta")
        self._masks.append((mask, mask_function))
        return mask

    def _check_count(self, layers: int) -> None:
        calls, modules = len(self._calls), len({id(call.module) for call in self._calls})
        if calls == modules == layers:
            return
        if not calls:
            raise UnsupportedModel("its attention does not go through the attention interface")
        if modules < layers:
            raise UnsupportedModel(f"{modules} of its {layers} layers have attention")
        raise UnsupportedModel(f"its {layers} layers call attention {calls} times")

    def _found(self, index: int, call: _Call, name: str, parameters: dict[int, str]) -> Found:
        arguments = {key: value for key, value in call.arguments.items() if value is not None}
        scale = arguments.pop("scaling", call.query.shape[-1] ** -0.5)
        window = arguments.pop("sliding_window", None)
        soft_cap = arguments.pop("softcap", None)
        sinks = arguments.pop("s_aux", None)
        if not arguments.pop("is_causal", True):
            raise UnsupportedModel(f"{name} is not causal")
        if unknown := sorted(arguments.keys() - _WITHOUT_EFFECT):
            raise UnsupportedModel(f"{name} calls attention with arguments {', '.join(unknown)}")
        if sinks is not None and id(sinks) not in parameters:
            raise UnsupportedModel(f"{name} has sinks that are not a parameter")
        heads, kv_heads, head_dim, v_head_dim = self._shape(call, name)
        return Found(
            module=name,
            sinks=None if sinks is None else parameters[id(sinks)],
            layer=AttentionLayer(
                index=index,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                v_head_dim=v_head_dim,
                scale=float(scale),
                window=self._window(call, name, window),
                soft_cap=soft_cap,
            ),
        )

    def _shape(self, call: _Call, name: str) -> tuple[int, int, int, int]:
        """Heads, key-value heads, their dimension and that of values."""
        query, key, value = (tuple(x.shape) for x in (call.query, call.key, call.value))
        heads, kv_heads = query[1], key[1]
        if query[::2] != (1, _TOKENS) or {key[:3], value[:3]} != {(1, kv_heads, _TOKENS)}:
            raise UnsupportedModel(
                f"{name} does not attend from {_TOKENS} tokens to themselves, but from"
                f" {list(query)} to {list(key)}"
            )
        if heads % kv_heads or key[3] != query[3]:
            raise UnsupportedModel(f"{name} has queries {list(query)} and keys {list(key)}")
        if {call.query.dtype, call.key.dtype, call.value.dtype} != {self._dtype}:
            raise UnsupportedModel(f"{name} does not compute in {self._dtype}")
        return heads, kv_heads, query[3], value[3]

    def _window(self, call: _Call, name: str, window: int | None) -> int | None:
        """The window, read from the mask; `window` is the argument for other implementations."""
        known = [mask for tensor, mask in self._masks if tensor is call.mask]
        if not known:
            raise UnsupportedModel(f"{name} has a custom mask or none")
        try:
            return window_of(known[0], [window, None], self._lengths, self._context_length)
        except UnsupportedModel as reason:
            raise UnsupportedModel(f"{name}: {reason}") from None
