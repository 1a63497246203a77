"""Compares our attention with the model's own before a transformers model serves.

A few random tokens run through the loaded model twice: each sequence alone and in one piece with
the model's own attention, then two sequences packed and in chunks over a paged pool. This detects
mixing of tokens that the probe cannot see: between neighbours in a batch, or through a state
outside the pool.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch, Int64, SamplingBatch
from pando_worker.models.errors import UnsupportedModel

Ours = Callable[[Tensor, Tensor, TorchAttention], Tensor]

# Allowed rounding error of logits, relative to their variation between tokens.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}

# New tokens of the two sequences in each step: packed prefills, a chunk beside a decode, ...
_STEPS = ((5, 11), (7, 1), (1, 1), (2, 8))
_LENGTHS = (15, 21)
_PAGE_SIZE = 4
_PAGE_TABLE = np.random.default_rng(0).permutation(12).reshape(2, 6).astype(np.int32)


def prove(model: Any, ours: Ours, pool: TokenToKVPool, vocab_size: int) -> None:
    """Compare a loaded model with our way of running it.

    Args:
        model: transformers' own
        ours: returns logits [num_tokens, vocab_size] for ids and positions [num_tokens]
        pool: with `PROOF_SLOTS` slots

    Raises:
        UnsupportedModel: they differ.
    """
    random = np.random.default_rng(1)
    rows = [random.integers(0, vocab_size, length) for length in _LENGTHS]
    expected = _library_logits(model, rows)
    device, attention = pool.k[0].device, TorchAttention(pool)
    parts: list[list[Tensor]] = [[], []]
    for batch in _batches(rows):
        attention.plan(batch)
        ids = torch.from_numpy(batch.input_ids).to(device)
        positions = torch.from_numpy(batch.positions).to(device)
        logits = torch.split(ours(ids, positions, attention), batch.extend_lens.tolist())
        for part, new in zip(parts, logits, strict=True):
            part.append(new)
    difference = max(
        _difference(torch.cat(part), truth) for part, truth in zip(parts, expected, strict=True)
    )
    limit = TOLERANCE[model.dtype]
    if not difference < limit:  # written so that NaN fails
        raise UnsupportedModel(
            "its logits differ between a run in chunks beside another sequence and a run alone, by"
            f" {difference:.2g} of their variation between tokens (limit {limit})"
        )


PROOF_SLOTS = _PAGE_TABLE.size * _PAGE_SIZE


def _library_logits(model: Any, rows: list[Int64]) -> list[Tensor]:
    """Logits after each token of each row, with the model's own attention."""
    serving = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        ids = [torch.from_numpy(row)[None].to(model.device) for row in rows]
        logits = [model(input_ids=row, use_cache=False).logits[0].float() for row in ids]
    model.set_attn_implementation(serving)
    return logits


def _difference(ours: Tensor, truth: Tensor) -> float:
    """The difference relative to the logits' variation between tokens, as they share a large
    part."""
    return float((ours - truth).norm() / (truth - truth.mean(dim=0)).norm())


def _batches(rows: list[Int64]) -> Iterator[ForwardBatch]:
    done = np.zeros(2, dtype=np.int32)
    for step in _STEPS:
        new = np.array(step, dtype=np.int32)
        where = [np.arange(at, at + n) for at, n in zip(done, new, strict=True)]
        slots = [
            pages[at // _PAGE_SIZE] * _PAGE_SIZE + at % _PAGE_SIZE
            for pages, at in zip(_PAGE_TABLE, where, strict=True)
        ]
        done = done + new
        yield ForwardBatch(
            input_ids=np.concatenate([row[at] for row, at in zip(rows, where, strict=True)]),
            positions=np.concatenate(where),
            out_slots=np.concatenate(slots),
            extend_lens=new,
            seq_lens=done,
            page_table=_PAGE_TABLE,
            page_size=_PAGE_SIZE,
            req_rows=np.arange(2),
            sample_rows=np.zeros(0, dtype=np.int64),
            sampling=_NO_SAMPLING,
        )


_NOTHING: Any = np.zeros(0)
_NO_SAMPLING = SamplingBatch(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING)
