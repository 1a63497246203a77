"""Attention among all tokens of each text, for models that keep nothing of them: no KV pool.

The texts of a step lie one after the other. Those of similar lengths form a group that is padded
to its longest and is one call of torch's attention. Only attention sees padding; all other layers
run the tokens as they lie.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pando_worker.tensors.transfer import to_device

Biases = Callable[[int], Tensor]
"""Of a length: what is added to the scores of a text's tokens, [heads, length, length]."""

# Texts up to this length share a group; longer ones share it up to twice the length.
SHORT = 32
# Tokens of a group with its padding: about what a processor's cache holds of keys.
GROUP_TOKENS = 4096
# Numbers in a group's mask, if it has one for each pair of tokens.
MASK_NUMBERS = 2**22
# With a window: queries that share their keys.
QUERY_BLOCK = 256


@dataclass(slots=True)
class _PaddedTexts:
    """Texts that are padded to the same length."""

    length: int
    # [texts * length], the tokens, padding as the text's last one; None: the step's own order
    tokens: Tensor | None
    # [tokens], where in the padded group each token of the group is, and which one it is
    places: Tensor | None
    numbers: Tensor | None
    hidden: Tensor | None  # bool [texts, length], padding; None without any
    masks: dict[object, Tensor | None] = field(default_factory=dict)  # by the kind of layer


class WholeAttention:
    """One plan for each step, then one call for each layer."""

    def __init__(self, device: torch.device, heads: int, *, dense_masks: bool) -> None:
        """
        Args:
            heads: of a layer
            dense_masks: whether layers have biases, so that masks have a number for each head and
                pair of tokens
        """
        self._device = device
        self._heads_in_mask = heads if dense_masks else 0
        self._groups: list[_PaddedTexts] = []

    def plan(self, lengths: NDArray[np.int32]) -> None:
        """
        Args:
            lengths: of the step's texts, in tokens, at least 1 each
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        starts = ends - lengths
        groups = self._grouped(lengths)
        self._groups = [
            self._group(starts[texts], lengths[texts], alone=len(groups) == 1) for texts in groups
        ]

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        *,
        reach: int | None = None,
        biases: Biases | None = None,
    ) -> Tensor:
        """[num_tokens, heads * head_dim] from queries, keys and values [num_tokens, heads,
        head_dim].

        Args:
            scale: of the scores
            reach: how far before and behind its own token a query sees keys; None: all of the text
        """
        out: Tensor | None = None
        for group in self._groups:
            parts = [_padded(each, group) for each in (q, k, v)]
            if reach is not None and group.length > reach + 1:
                found = self._within(parts, group, scale, reach)
            else:
                mask = self._mask(group, q.dtype, biases)
                found = scaled_dot_product_attention(
                    parts[0], parts[1], parts[2], attn_mask=mask, scale=scale
                )
            # [texts, heads, length, head_dim] to [texts * length, heads * head_dim]
            found = found.transpose(1, 2).flatten(2).flatten(0, 1)
            if group.numbers is None:
                return found
            own = found if group.places is None else found.index_select(0, group.places)
            if out is None:
                out = q.new_empty(len(q), own.shape[1])
            out.index_copy_(0, group.numbers, own)
        assert out is not None, "a step has a text"
        return out

    def _grouped(self, lengths: NDArray[np.int32]) -> list[NDArray[np.int64]]:
        """Indices of texts, group by group, in ascending length."""
        order = np.argsort(lengths, kind="stable")
        groups: list[list[int]] = []
        shortest = 0
        for text in order.tolist():
            length = int(lengths[text])
            size = len(groups[-1]) + 1 if groups else 1
            if not groups or length > 2 * max(shortest, SHORT // 2) or self._is_large(size, length):
                groups.append([])
                shortest = length
            groups[-1].append(text)
        return [np.array(sorted(group), dtype=np.int64) for group in groups]

    def _is_large(self, texts: int, length: int) -> bool:
        return (
            texts * length > GROUP_TOKENS
            or texts * length * length * self._heads_in_mask > MASK_NUMBERS
        )

    def _group(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int32], *, alone: bool
    ) -> _PaddedTexts:
        longest = int(lengths.max())
        places = np.arange(longest)
        is_padding = places >= lengths[:, None]
        if not is_padding.any():
            if alone:
                return _PaddedTexts(longest, None, None, None, None)
            tokens = self._tensor((starts[:, None] + places).reshape(-1))
            return _PaddedTexts(longest, tokens, None, tokens, None)
        padded = (starts[:, None] + np.minimum(places, lengths[:, None] - 1)).reshape(-1)
        real = np.flatnonzero(~is_padding)
        return _PaddedTexts(
            longest,
            self._tensor(padded),
            self._tensor(real),
            self._tensor(padded[real]),
            self._tensor(is_padding),
        )

    def _mask(
        self, group: _PaddedTexts, dtype: torch.dtype, biases: Biases | None
    ) -> Tensor | None:
        """Added to a group's scores, [texts or 1, heads or 1, length or 1, length]; None: nothing
        is."""
        if biases in group.masks:
            return group.masks[biases]
        mask: Tensor | None = None
        if group.hidden is not None:
            mask = torch.zeros(group.hidden.shape, dtype=dtype, device=self._device)
            mask = mask.masked_fill_(group.hidden, -torch.inf)[:, None, None]
        if biases is not None:
            added = biases(group.length)[None]
            mask = added if mask is None else added + mask
        group.masks[biases] = mask
        return mask

    def _within(self, parts: list[Tensor], group: _PaddedTexts, scale: float, reach: int) -> Tensor:
        """Attention to the keys within `reach`, block by block of queries."""
        q, k, v = parts
        out = torch.empty_like(q)
        for start in range(0, group.length, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, group.length)
            first, last = max(0, start - reach), min(group.length, end + reach)
            mask = self._window(group, q.dtype, reach, (start, end, first, last))
            out[:, :, start:end] = scaled_dot_product_attention(
                q[:, :, start:end],
                k[:, :, first:last],
                v[:, :, first:last],
                attn_mask=mask,
                scale=scale,
            )
        return out

    def _window(
        self, group: _PaddedTexts, dtype: torch.dtype, reach: int, block: tuple[int, int, int, int]
    ) -> Tensor:
        """The mask for queries start..end and keys first..last, [texts or 1, 1, queries, keys]."""
        kind = (reach, block)
        if (found := group.masks.get(kind)) is not None:
            return found
        start, end, first, last = block
        queries = torch.arange(start, end, device=self._device)
        keys = torch.arange(first, last, device=self._device)
        hidden = ((queries[:, None] - keys).abs() > reach)[None, None]
        if group.hidden is not None:
            hidden = hidden | group.hidden[:, None, None, first:last]
            # A query of padding far behind a text sees nothing, and softmax of that is not finite.
            hidden = hidden & ~(queries[:, None] == keys)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
        group.masks[kind] = mask = mask.masked_fill_(hidden, -torch.inf)
        return mask

    def _tensor(self, array: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
        return to_device(array, self._device)


def _padded(x: Tensor, group: _PaddedTexts) -> Tensor:
    """[num_tokens, heads, head_dim] to [texts, heads, length, head_dim]"""
    own = x if group.tokens is None else x.index_select(0, group.tokens)
    return own.view(-1, group.length, *own.shape[1:]).transpose(1, 2)
