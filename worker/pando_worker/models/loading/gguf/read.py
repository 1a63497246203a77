"""All tensors of GGUF files, under the names that our families know."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.gguf.architectures import (
    IGNORED,
    TOP,
    Architecture,
    architecture,
)
from pando_worker.models.loading.gguf.gpt_oss import by_input
from pando_worker.models.loading.gguf.header import read_header
from pando_worker.models.loading.gguf.metadata import Metadata
from pando_worker.models.loading.gguf.tensors import GgufTensor


def read_gguf(parts: Sequence[Path]) -> dict[str, Stored]:
    """
    Raises:
        BrokenCheckpoint: a malformed file, a tensor that is there twice.
        UnsupportedModel: an architecture that is not read.
    """
    headers = [read_header(part) for part in parts]
    metadata = Metadata(headers[0])
    known = architecture(metadata)
    heads = metadata.count("attention.head_count")
    kv_heads = metadata.get("attention.head_count_kv", int) or heads
    tensors: dict[str, GgufTensor] = {}
    for header in headers:
        for name, place in header.tensors.items():
            if name in IGNORED:
                continue
            stored = GgufTensor(header.path, place, place.shape)
            for ours, one in _named(known, name, stored, heads, kv_heads):
                if ours in tensors:
                    raise BrokenCheckpoint(f"{header.path} has the tensor {name} a second time")
                tensors[ours] = one
    return by_input(tensors) if known.stacked_by_input else dict(tensors)


def _named(
    known: Architecture, name: str, stored: GgufTensor, heads: int, kv_heads: int
) -> Iterator[tuple[str, GgufTensor]]:
    """Under the name that it has in our families; unknown ones keep theirs."""
    base, _, kind = name.rpartition(".")
    layer, _, tensor = base.removeprefix("blk.").partition(".")
    if known.norm_offset and base.endswith("norm"):
        stored = replace(stored, added=1.0)
    if base in TOP:
        yield f"{TOP[base]}.{kind}", stored
    elif tensor in known.experts and len(stored.shape) == 3:
        for expert in range(stored.shape[0]):
            ours = f"model.layers.{layer}.{known.experts[tensor].format(expert)}.{kind}"
            yield ours, stored.of_expert(expert)
    elif tensor in known.without_kind:
        yield f"model.layers.{layer}.{known.without_kind[tensor]}", stored
    elif tensor in known.layer:
        if known.permuted and tensor in ("attn_q", "attn_k"):
            rows = stored.shape[0]
            stored = replace(stored, pairs=rows // (heads if tensor == "attn_q" else kv_heads))
        yield f"model.layers.{layer}.{known.layer[tensor]}.{kind}", stored
    else:
        yield name, stored
