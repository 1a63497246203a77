"""The border to transformers: the function that its models call for attention.

`AttentionInterface` names a function that each attention module of a model calls in place of its
own. Ours finds its layer, and the backend of the step, on the module, so it keeps no state. No mask
function has the name, so that transformers makes no masks: the backend knows what a token sees.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import AttentionInterface

from pando_worker.attention.backend import AttentionBackend, AttentionLayer

SERVING = "pando"


class AttentionStep:
    """What the attention modules of a model share: the backend, planned for the current batch."""

    backend: AttentionBackend


@dataclass(frozen=True, slots=True)
class Site:
    """What an attention module of transformers has of ours, as its attribute `pando_site`."""

    layer: AttentionLayer
    step: AttentionStep


def paged_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: Any
) -> tuple[Tensor, None]:
    """Of a step's tokens, one after the other.

    What the other arguments say is in the layer: the probe has read them there.

    Args:
        query, key, value: [1, heads or kv_heads, num_tokens, head_dim or v_head_dim]

    Returns:
        [1, num_tokens, heads, v_head_dim], and no weights
    """
    site: Site = module.pando_site
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))
    return site.step.backend.forward(q, k, v, site.layer)[None], None


AttentionInterface.register(SERVING, paged_attention)
