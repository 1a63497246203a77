"""The function that transformers' models call for attention.

`AttentionInterface` registers a function that each attention module of a model calls instead of its
own. Ours reads its layer and the step's backend from the module, so it keeps no state. No mask
function is registered under the name, so transformers makes no masks: the backend applies them.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import AttentionInterface

from pando_worker.attention.backend import AttentionBackend, AttentionLayer

SERVING = "pando"


class AttentionStep:
    """State that a model's attention modules share: the backend, planned for the current batch."""

    backend: AttentionBackend


@dataclass(frozen=True, slots=True)
class Site:
    """Our data on an attention module of transformers, in its attribute `pando_site`."""

    layer: AttentionLayer
    step: AttentionStep


def paged_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: Any
) -> tuple[Tensor, None]:
    """Attention for the tokens of a step, concatenated.

    The other arguments are ignored: the probe has already read them into the layer.

    Args:
        query, key, value: [1, heads or kv_heads, num_tokens, head_dim or v_head_dim]

    Returns:
        [1, num_tokens, heads, v_head_dim], and None for the weights
    """
    site: Site = module.pando_site
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))
    return site.step.backend.forward(q, k, v, site.layer)[None], None


AttentionInterface.register(SERVING, paged_attention)
