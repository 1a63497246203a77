"""Edits logits before a token is drawn: biases, penalties, masks.

The order is vLLM's: bias, then repetition, frequency and presence, then the mask; and then the
rule by which Whisper's time stamps follow. Biases and
penalties touch only the listed tokens, not the whole vocabulary. The mask, one bit per token, is
expanded with a table of bytes.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.batch import Int32, LogitBias, Penalties, SpeechRows
from pando_worker.runner.sampling.histories import History
from pando_worker.tensors.transfer import to_device

_ROWS_AT_ONCE = 32  # bounds the copies that penalties make


def add_bias(logits: Tensor, bias: LogitBias) -> None:
    """Add the values to their logits, [rows, vocab_size], in place. Values for the same token add
    up."""
    device = logits.device
    where = (to_device(bias.samples, device), to_device(bias.tokens, device))
    logits.index_put_(where, to_device(bias.values, device), accumulate=True)


def penalize(logits: Tensor, penalties: Penalties, history: History) -> None:
    """Lower the logits of a row's earlier tokens, in place.

    Repetition divides a positive logit and multiplies a negative one, for tokens of prompt and
    output, independent of their count (CTRL, arXiv:1909.05858). Frequency subtracts its value once
    per occurrence in the output, presence once.

    Args:
        logits: float32 [rows, vocab_size]
        history: earlier tokens of the rows with penalties
    """
    device, vocab_size = logits.device, logits.shape[1]
    for start in range(0, len(penalties.samples), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        samples = to_device(penalties.samples[part], device)
        tokens, output = history.part(part)
        # An extra column absorbs what is done to the padding.
        block = functional.pad(logits.index_select(0, samples), (0, 1))
        if (penalties.repetition[part] != 1).any():
            factor = to_device(penalties.repetition[part], device)[:, None]
            had = block.gather(1, tokens)
            # A token that is listed twice is written twice with the same value.
            block.scatter_(1, tokens, torch.where(had > 0, had / factor, had * factor))
        if penalties.presence[part].any():
            presence = to_device(penalties.presence[part], device)[:, None]
            block.scatter_(1, output, block.gather(1, output) - presence)
        if penalties.frequency[part].any():
            frequency = to_device(penalties.frequency[part], device)[:, None]
            block.scatter_add_(1, output, -frequency.expand(output.shape))
        logits.index_copy_(0, samples, block[:, :vocab_size])


def prefer_timestamps(logits: Tensor, speech: SpeechRows) -> None:
    """Forbid text, in place, where all time stamps together are likelier than the likeliest text.

    Args:
        logits: float32 [rows, vocab_size], with -inf for what may not follow
    """
    device = logits.device
    for first in np.unique(speech.first_timestamps).tolist():
        if first >= logits.shape[1]:
            continue
        samples = to_device(speech.samples[speech.first_timestamps == first], device)
        rows = logits.index_select(0, samples)
        text, stamps = rows[:, :first], rows[:, first:]
        follows = stamps.logsumexp(dim=-1) > text.amax(dim=-1)
        text.masked_fill_(follows[:, None], -torch.inf)
        logits.index_copy_(0, samples, rows)


def apply_mask(logits: Tensor, mask: Int32) -> None:
    """Forbid tokens, in place. -inf is added, not assigned, so that NaN stays visible.

    Args:
        logits: float32 [rows, vocab_size]
        mask: [rows, ceil(vocab_size / 32)]; token t is allowed where bit t % 32 of word t // 32 is
            set, as in llguidance and xgrammar
    """
    assert mask.shape == (len(logits), -(-logits.shape[1] // 32)), (mask.shape, logits.shape)
    bits = torch.arange(8, device=logits.device)
    allowed = (torch.arange(256, device=logits.device)[:, None] >> bits) & 1
    table = torch.zeros(256, 8, device=logits.device).masked_fill_(allowed == 0, -torch.inf)
    octets = to_device(mask, logits.device).view(torch.uint8).int()  # lowest first: little-endian
    logits += functional.embedding(octets, table).flatten(1)[:, : logits.shape[1]]
